from django.urls import path

from capacity import views

urlpatterns = [path("", views.capacity, name="capacity")]
