from django.urls import path

from workers.api import views

urlpatterns = [
    path("hosts/", views.HostList.as_view(), name="hosts"),
    path("hosts/<str:reference>/", views.HostDetail.as_view(), name="host"),
    path("hosts/<str:reference>/drain/", views.HostDrain.as_view(), name="host-drain"),
    path("hosts/<str:reference>/resume/", views.HostResume.as_view(), name="host-resume"),
    path("slots/", views.SlotList.as_view(), name="slots"),
    path("resource-groups/", views.ResourceGroupList.as_view(), name="resource-groups"),
    path("resource-groups/<str:reference>/", views.ResourceGroupDetail.as_view(), name="resource-group"),
]
