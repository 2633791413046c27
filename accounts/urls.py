from django.urls import path

from accounts import views

urlpatterns = [
    path("account/", views.account, name="account"),
    path("account/password/", views.account_password, name="account-password"),
    path("account/tokens/", views.account_token_make, name="account-token-make"),
    path("account/tokens/<int:token_id>/withdraw/", views.account_token_withdraw, name="account-token-withdraw"),
    path("device/", views.device, name="device"),
    path("welcome/<int:link_id>/<str:secret>/", views.one_time_link, name="one-time-link"),
    path("users/", views.user_list, name="users"),
    path("users/invite/", views.user_invite, name="user-invite"),
    path("users/<int:user_id>/", views.user_detail, name="user"),
    path("users/<int:user_id>/role/", views.user_role, name="user-role"),
    path("users/<int:user_id>/reset-password/", views.user_reset, name="user-reset"),
    path("users/<int:user_id>/deactivate/", views.user_deactivate, name="user-deactivate"),
    path("users/<int:user_id>/activate/", views.user_activate, name="user-activate"),
    path("users/<int:user_id>/withdraw/", views.user_withdraw, name="user-withdraw"),
    path("users/<int:user_id>/tokens/<int:token_id>/withdraw/", views.user_token_withdraw, name="user-token-withdraw"),
]
