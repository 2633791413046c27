from django.urls import path

from replay import views

urlpatterns = [
    path("", views.what_if, name="what-if"),
    path("<int:number>/", views.what_if_replay, name="what-if-replay"),
    path("<int:number>/remove/", views.what_if_remove, name="what-if-remove"),
]
