from django.urls import path

from jobs.api import views

urlpatterns = [
    path("jobs/", views.JobList.as_view(), name="jobs"),
    path("jobs/<int:job>/", views.JobDetail.as_view(), name="job"),
    path("jobs/<int:job>/cancel/", views.JobCancel.as_view(), name="job-cancel"),
    path("jobs/<int:job>/suspend/", views.JobSuspend.as_view(), name="job-suspend"),
    path("jobs/<int:job>/resume/", views.JobResume.as_view(), name="job-resume"),
    path("jobs/<int:job>/clone/", views.JobClone.as_view(), name="job-clone"),
    path("jobs/<int:job>/allocation/", views.JobAllocation.as_view(), name="job-allocation"),
    path("jobs/<int:job>/ranks/", views.JobRanks.as_view(), name="job-ranks"),
    path("jobs/<int:job>/events/", views.JobEvents.as_view(), name="job-events"),
    path("jobs/<int:job>/metrics/", views.JobMetrics.as_view(), name="job-metrics"),
    path("jobs/<int:job>/logs/", views.JobLogs.as_view(), name="job-logs"),
    path("jobs/<int:job>/result/", views.JobResult.as_view(), name="job-result"),
    path("jobs/<int:job>/checkpoints/", views.JobCheckpoints.as_view(), name="job-checkpoints"),
    path(
        "jobs/<int:job>/checkpoints/<int:checkpoint>/download/",
        views.JobCheckpointDownload.as_view(),
        name="job-checkpoint-download",
    ),
    path("instance-groups/", views.InstanceGroupList.as_view(), name="instance-groups"),
    path("instance-groups/<str:reference>/", views.InstanceGroupDetail.as_view(), name="instance-group"),
]
