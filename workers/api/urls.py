from django.urls import path

from workers.api import joining, views

urlpatterns = [
    path("hosts/", views.HostList.as_view(), name="hosts"),
    path("hosts/<str:reference>/", views.HostDetail.as_view(), name="host"),
    path("hosts/<str:reference>/drain/", views.HostDrain.as_view(), name="host-drain"),
    path("hosts/<str:reference>/resume/", views.HostResume.as_view(), name="host-resume"),
    path("hosts/<str:reference>/restore/", views.HostRestore.as_view(), name="host-restore"),
    path("join-tokens/", joining.JoinTokenList.as_view(), name="join-tokens"),
    path("join-tokens/<int:token>/", joining.JoinTokenDetail.as_view(), name="join-token"),
    path("join/", joining.Join.as_view(), name="join"),
    path("slots/", views.SlotList.as_view(), name="slots"),
    path("resource-groups/", views.ResourceGroupList.as_view(), name="resource-groups"),
    path("resource-groups/<str:reference>/", views.ResourceGroupDetail.as_view(), name="resource-group"),
]
