from django.urls import path

from reports import views

app_name = "reports"
urlpatterns = [
    path("", views.report_list, name="list"),
    path("add/", views.report_add, name="add"),
    path("<int:report_id>/", views.report_detail, name="detail"),
    path("<int:report_id>/edit/", views.report_edit, name="edit"),
    path("<int:report_id>/texts/", views.report_text_add, name="text-add"),
    path("<int:report_id>/blocks/<int:block_id>/text/", views.report_block_text, name="block-text"),
    path("<int:report_id>/blocks/<int:block_id>/move/", views.report_block_move, name="block-move"),
    path("<int:report_id>/blocks/<int:block_id>/remove/", views.report_block_remove, name="block-remove"),
    path("<int:report_id>/readers/", views.report_readers, name="readers"),
    path("<int:report_id>/links/", views.report_share, name="share"),
    path("<int:report_id>/links/<int:link_id>/withdraw/", views.report_link_withdraw, name="link-withdraw"),
    path("<int:report_id>/delete/", views.report_delete, name="delete"),
]
