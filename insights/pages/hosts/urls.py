from django.urls import path, re_path

from insights.pages.hosts import views

app_name = "hosts"
urlpatterns = [
    path("", views.host_list, name="list"),
    path("join/", views.host_join, name="join"),
    path("join/<int:token_id>/withdraw/", views.host_join_withdraw, name="join-withdraw"),
    path("slots/<int:slot>/return/", views.slot_return, name="slot-return"),
    re_path(
        r"^(?P<host_id>\d{1,18})/(?P<verb>drain|resume|remove)/question.json$",
        views.host_question,
        name="question",
    ),
    re_path(r"^(?P<host_id>\d{1,18})/(?P<verb>drain|resume|remove|restore)/$", views.host_act, name="act"),
]
