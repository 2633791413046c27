from django.urls import path

from alerts import views

urlpatterns = [
    path("", views.alerts, name="alerts"),
    path("deliveries/", views.deliveries_now, name="alerts-deliveries"),
    path("channels/", views.channel_add, name="alerts-channel-add"),
    path("channels/<int:channel_id>/remove/", views.channel_remove, name="alerts-channel-remove"),
    path("channels/<int:channel_id>/test/", views.channel_test, name="alerts-channel-test"),
    path("rules/", views.rule_add, name="alerts-rule-add"),
    path("rules/<int:rule_id>/remove/", views.rule_remove, name="alerts-rule-remove"),
    path("quiet-hours/", views.quiet_set, name="alerts-quiet-set"),
    path("quiet-hours/end/", views.quiet_end, name="alerts-quiet-end"),
]
