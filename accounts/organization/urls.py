from django.urls import path

from accounts.organization import views

urlpatterns = [
    path("", views.oidc_login, name="oidc-login"),
    path("callback/", views.oidc_callback, name="oidc-callback"),
    path("logout/", views.oidc_logout, name="oidc-logout"),
]
