from __future__ import annotations

from django.urls import path, re_path

from jobs import views

app_name = "jobs"
urlpatterns = [
    path("", views.job_list, name="list"),
    path("new/", views.train, name="train"),
    path("<int:job_id>/", views.job_detail, name="detail"),
    path("<int:job_id>/live.json", views.job_detail_live, name="live"),
    path("<int:job_id>/change/", views.job_change, name="change"),
    path("<int:job_id>/clone/", views.job_clone, name="clone"),
    re_path(r"^(?P<job_id>\d{1,18})/(?P<action>cancel|suspend|resume)/$", views.job_act, name="act"),
]
