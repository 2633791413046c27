from django.urls import path, re_path

from insights.pages.groups import form_views, views

app_name = "groups"
urlpatterns = [
    path("", views.group_list, name="list"),
    path("new/", form_views.group_new, name="new"),
    path("parameters.json", form_views.read_parameters, name="parameters"),
    path("<int:group_id>/", views.group_detail, name="detail"),
    path("<int:group_id>/deployment/", views.group_deployment, name="deployment"),
    path("<int:group_id>/trace.json", views.group_trace, name="trace"),
    path("<int:group_id>/change/", form_views.group_change, name="change"),
    path("<int:group_id>/change/preview/", form_views.group_change_preview, name="change-preview"),
    path("<int:group_id>/undo/", form_views.group_undo, name="undo"),
    re_path(r"^(?P<group_id>\d{1,18})/(?P<action>start|stop|delete)/$", views.group_act, name="act"),
]
