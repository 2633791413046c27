from django.urls import path

from insights.api import cluster, differences, gpu_use, groups, jobs, recordings, slow

urlpatterns = [
    path("cluster/", cluster.Cluster.as_view(), name="cluster"),
    path("cluster/trace/", cluster.ClusterTrace.as_view(), name="cluster-trace"),
    path("cluster/trace.csv", cluster.ClusterTraceCsv.as_view(), name="cluster-trace-csv"),
    path("cluster/gpus/", gpu_use.ClusterGpus.as_view(), name="cluster-gpus"),
    path("software/", cluster.Software.as_view(), name="software"),
    path("jobs/differences/", differences.JobDifferences.as_view(), name="job-differences"),
    path("jobs/preview/", jobs.JobPreview.as_view(), name="job-preview"),
    path("jobs/adaptdl/preview/", jobs.AdaptDLPreview.as_view(), name="job-adaptdl-preview"),
    path("jobs/<int:job>/preview/", jobs.JobChangePreview.as_view(), name="job-change-preview"),
    path("jobs/<int:job>/advice/", jobs.JobAdvice.as_view(), name="job-advice"),
    path("jobs/<int:job>/why/", jobs.JobWhy.as_view(), name="job-why"),
    path("jobs/<int:job>/eta/", jobs.JobEta.as_view(), name="job-eta"),
    path("jobs/<int:job>/goodput/", jobs.JobGoodput.as_view(), name="job-goodput"),
    path("jobs/<int:job>/gpus/", gpu_use.JobGpus.as_view(), name="job-gpus"),
    path("jobs/<int:job>/time/", slow.JobTime.as_view(), name="job-time"),
    path("jobs/<int:job>/stacks/", slow.JobStacks.as_view(), name="job-stacks"),
    path("jobs/<int:job>/flame/", recordings.JobFlame.as_view(), name="job-flame"),
    path("jobs/<int:job>/flame.speedscope.json", recordings.JobFlameFile.as_view(), name="job-flame-file"),
    path("jobs/<int:job>/trace/", recordings.JobTrace.as_view(), name="job-trace"),
    path("jobs/<int:job>/trace.json.gz", recordings.JobTraceFile.as_view(), name="job-trace-file"),
    path("fair-share/", cluster.FairShare.as_view(), name="fair-share"),
    path(
        "instance-groups/<str:reference>/preview/", groups.InstanceGroupPreview.as_view(), name="instance-group-preview"
    ),
]
