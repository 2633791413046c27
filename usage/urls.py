from django.urls import path

from usage import views

urlpatterns = [
    path("", views.usage, name="usage"),
    path("report.json", views.usage_report, name="usage-report"),
    path("prices/<int:number>/remove/", views.price_remove, name="usage-price-remove"),
    path("prices/restore/", views.price_restore, name="usage-price-restore"),
]
