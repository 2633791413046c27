from django.urls import path

from models_registry import views

app_name = "models"
urlpatterns = [
    path("", views.model_list, name="list"),
    path("new/", views.template_choice, name="new"),
    path("new/<int:template_id>/", views.model_add, name="add"),
    path("templates/", views.template_list, name="templates"),
    path("templates/new/", views.template_add, name="add-location"),
    path("templates/<int:template_id>/", views.template_detail, name="template"),
    path("templates/<int:template_id>/take-again/", views.template_take_again, name="take-again"),
    path("templates/<int:template_id>/readers/", views.template_readers, name="template-readers"),
    path("templates/<int:template_id>/delete/", views.template_delete, name="delete-template"),
    path("<int:model_id>/", views.model_detail, name="detail"),
    path("<int:model_id>/change/", views.model_change, name="change"),
    path("<int:model_id>/clone/", views.model_clone, name="clone"),
    path("<int:model_id>/compare/", views.model_compare, name="compare"),
    path("<int:model_id>/readers/", views.model_readers, name="readers"),
    path("<int:model_id>/delete/", views.model_delete, name="delete"),
]
