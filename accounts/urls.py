from __future__ import annotations

from django.urls import path

from accounts import user_views, views

urlpatterns = [
    path("account/", views.account, name="account"),
    path("account/password/", views.account_password, name="account-password"),
    path("account/tokens/", views.account_token_make, name="account-token-make"),
    path("account/tokens/<int:token_id>/withdraw/", views.account_token_withdraw, name="account-token-withdraw"),
    path("welcome/<int:link_id>/<str:secret>/", views.one_time_link, name="one-time-link"),
    path("users/", user_views.user_list, name="users"),
    path("users/invite/", user_views.user_invite, name="user-invite"),
    path("users/<int:user_id>/", user_views.user_detail, name="user"),
    path("users/<int:user_id>/role/", user_views.user_role, name="user-role"),
    path("users/<int:user_id>/reset-password/", user_views.user_reset, name="user-reset"),
    path("users/<int:user_id>/deactivate/", user_views.user_deactivate, name="user-deactivate"),
    path("users/<int:user_id>/activate/", user_views.user_activate, name="user-activate"),
    path("users/<int:user_id>/withdraw/", user_views.user_withdraw, name="user-withdraw"),
    path(
        "users/<int:user_id>/tokens/<int:token_id>/withdraw/",
        user_views.user_token_withdraw,
        name="user-token-withdraw",
    ),
]
