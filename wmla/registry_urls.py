"""Addresses of datasets, templates, models, trainings and validations."""

from __future__ import annotations

from django.urls import URLPattern, re_path

from wmla import absent, datasets, registered_models, templates, trainings, ui_frameworks, validations
from wmla.view import route

__all__ = ["registry"]

_MODEL = "models/<model>"
#: A file may lie in a folder of its template or model.
_FILE = r"files/(?P<file>.+)$"

registry: list[URLPattern] = [
    *absent.urls,
    route("datasets", datasets.Datasets, "datasets"),
    route("datasets/<dataset>", datasets.DatasetDetail, "dataset"),
    route("datasets/<dataset>/stop", datasets.DatasetStop, "dataset-stop"),
    route("datasets/<dataset>/csvs", absent.DatasetContents, "dataset-csvs"),
    route("datasets/<dataset>/objectimages", absent.DatasetContents, "dataset-pictures"),
    route("modeltemplates", templates.Templates, "templates"),
    route("modeltemplates/<template>", templates.Template, "template"),
    route("modeltemplates/<template>/files", templates.TemplateFiles, "template-files"),
    re_path(rf"^modeltemplates/(?P<template>[^/]+)/{_FILE}", templates.TemplateFile.as_view(), name="template-file"),
    route("models", registered_models.Models, "models"),
    route(_MODEL, registered_models.Model, "model"),
    route(f"{_MODEL}/files", registered_models.ModelFiles, "model-files"),
    re_path(rf"^models/(?P<model>[^/]+)/{_FILE}", registered_models.ModelFile.as_view(), name="model-file"),
    route(f"{_MODEL}/weightfile", registered_models.ModelWeights, "model-weights"),
    route(f"{_MODEL}/trainingnames", trainings.TrainingNames, "training-names"),
    route(f"{_MODEL}/trainings", trainings.Trainings, "trainings"),
    route(f"{_MODEL}/trainings/<training>", trainings.Training, "training"),
    route(f"{_MODEL}/trainings/<training>/stop", trainings.TrainingStop, "training-stop"),
    route(f"{_MODEL}/trainings/<training>/weightfile", trainings.TrainingWeights, "training-weights"),
    route(f"{_MODEL}/validations", validations.ModelValidations, "validations"),
    route(f"{_MODEL}/validations/<validation>", validations.ModelValidation, "validation"),
    route(f"{_MODEL}/validations/<validation>/stop", validations.ValidationStop, "validation-stop"),
    route("frameworks", ui_frameworks.UiFrameworks, "frameworks"),
    route("frameworks/all", ui_frameworks.UiFrameworks, "frameworks-all"),
    # Last of these: a model or template may be called "files".
    re_path(rf"^models/{_FILE}", absent.FileWithoutOwner.as_view(), name="some-model-file"),
    re_path(rf"^modeltemplates/{_FILE}", absent.FileWithoutOwner.as_view(), name="some-template-file"),
]
