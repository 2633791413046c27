from django.urls import path

from studies import views

app_name = "studies"
urlpatterns = [
    path("", views.study_list, name="list"),
    path("new/", views.study_new, name="new"),
    path("<int:study_id>/", views.study_detail, name="detail"),
    path("<int:study_id>/now/", views.study_now, name="now"),
    path("<int:study_id>/figures.json", views.study_figures, name="figures"),
    path("<int:study_id>/trials/", views.study_add_trials, name="add-trials"),
    path("<int:study_id>/metric/", views.study_metric, name="metric"),
    path("<int:study_id>/seeds/", views.study_seeds, name="seeds"),
    path("<int:study_id>/enqueue/", views.study_enqueue, name="enqueue"),
    path("<int:study_id>/delete/", views.study_delete, name="delete"),
    path("<int:study_id>/<slug:verb>/", views.study_change_state, name="change-state"),
]
