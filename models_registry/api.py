"""REST API below `/api/v1/templates/` and `/api/v1/models/`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core import uploads
from core.dataclass_serializers import output_of
from core.errors import existing, field_error
from core.file_sources import Source
from core.files_api import SourceInput
from core.rest import (
    PARSERS_WITH_FILES,
    ByReference,
    NamedPages,
    NumberedPages,
    ObjectField,
    ReferenceField,
    StrictSerializer,
    signed_in,
    validated,
)
from core.visibility import Readers
from models_registry import actions, queries
from models_registry.actions import ModelRegistration, TemplateAddition
from models_registry.code_inspection import inspect_code
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from models_registry.parameter_kinds import text_parameters

__all__ = ["FilesOutput", "urlpatterns"]


class _FilesInput(SourceInput):
    path = serializers.CharField(
        max_length=4096,
        default="",
        allow_blank=True,
        help_text="Path of a folder or .py file below a permitted model root; instead of `file`.",
    )
    file = serializers.FileField(default=None, allow_null=True, help_text=".tar, .tar.gz, .zip or one .py file.")


_READERS = (
    "Who may read the code, train and clone it, besides its owner and administrators: everybody, group (members of an "
    "instance group that the owner is a member of), owner."
)


class ReadersInput(StrictSerializer):
    readers = serializers.ChoiceField(Readers.choices, help_text=_READERS)


class TemplateInput(_FilesInput):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    framework = serializers.CharField(max_length=64, default=ModelTemplate.Framework.PYTORCH)
    entry_point = serializers.CharField(
        max_length=4096, default="main.py", help_text="Script to run, one of the files."
    )
    readers = serializers.ChoiceField(Readers.choices, default=Readers.EVERYBODY, help_text=_READERS)
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True)


class TemplateOutput(serializers.ModelSerializer[ModelTemplate]):
    owner = serializers.CharField(source="owner.username")
    compat = serializers.ListField(child=serializers.CharField())
    used = serializers.IntegerField(help_text="Number of models made from it.")

    class Meta:
        model = ModelTemplate
        fields = [
            "id", "name", "description", "framework", "owner", "readers", "path", "entry_point", "digest", "compat",
            "used", "created_at", "taken_at",
        ]  # fmt: skip


class ModelInput(_FilesInput):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    upload = serializers.IntegerField(
        default=None, allow_null=True, min_value=1, help_text="Id of a finished upload; instead of `path` and `file`."
    )
    template = ReferenceField(
        default=None, allow_null=True, help_text="Template whose code it uses; instead of path or file."
    )
    framework = serializers.CharField(max_length=64, default=RegisteredModelVersion.Framework.PYTORCH)
    engine = serializers.ChoiceField(
        RegisteredModelVersion.Engine.choices,
        default="",
        allow_blank=True,
        help_text="Engine; default: detected from the code.",
    )
    entry_point = serializers.CharField(
        max_length=4096,
        default="",
        allow_blank=True,
        help_text="Script to run, for path or file; a template has its own.",
    )
    dataset = serializers.CharField(
        max_length=255, default="", allow_blank=True, help_text="Name of the default dataset of its trainings."
    )
    settings = ObjectField(
        default=dict,
        help_text="lr_policy, learning_rate, gamma, step_size, step_values, t_max, optimizer, momentum, weight_decay, "
        "hidden_size, epochs, batch_size: each is passed to the script if the script accepts it.",
    )
    parameters = ObjectField(
        default=dict, help_text="Arguments passed to the script as `--name value`; they override the settings."
    )
    compat = serializers.ListField(
        child=serializers.CharField(max_length=64),
        default=None,
        allow_null=True,
        max_length=20,
        help_text="Compatibility modules; default: detected from the code's imports.",
    )
    readers = serializers.ChoiceField(
        Readers.choices,
        default="",
        help_text=f"{_READERS} Default: unchanged; for a new model, those of its template, or everybody.",
    )
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        values = super().validate(attrs)
        template, dataset = values.pop("template"), values.pop("dataset")
        if values["upload"] is not None and (template is not None or values["source"] != Source()):
            raise field_error("upload", "Send either upload, or one of path, file and template.")
        if template is not None:
            if values["source"] != Source() or values["entry_point"]:
                raise field_error(
                    "template", "A template has its own files and entry point: remove path, file and entry_point."
                )
            values["source"] = queries.find_template(self.context["user"], template)
            if values["source"] is None:
                raise field_error("template", f"Template {str(template)[:100]!a} not found: look it up in the list.")
        return {**values, "default_dataset": dataset}


class CloneInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)


_PROCESSES = "Number of processes that a fixed-size script requests itself; null: unknown."


class ModelVersionOutput(serializers.ModelSerializer[RegisteredModelVersion]):
    processes = serializers.IntegerField(source="declared.processes", allow_null=True, help_text=_PROCESSES)
    parameters = ObjectField(help_text="Given parameters, and the settings that the script accepts.")
    settings = ObjectField()
    compat = serializers.ListField(child=serializers.CharField())
    dataset = serializers.CharField(source="default_dataset")
    template = serializers.CharField(source="template.name", default=None, allow_null=True)
    text_parameters = serializers.SerializerMethodField(
        help_text="Names of the parameters whose values are texts. Commas separate values of any other in a sweep."
    )

    class Meta:
        model = RegisteredModelVersion
        fields = [
            "number", "template", "framework", "engine", "processes", "path", "entry_point", "dataset", "settings",
            "parameters", "text_parameters", "compat", "digest", "created_at",
        ]  # fmt: skip

    def get_text_parameters(self, version: RegisteredModelVersion) -> list[str]:
        return text_parameters(version)


class ModelOutput(serializers.ModelSerializer[RegisteredModel]):
    owner = serializers.CharField(source="owner.username")
    latest = serializers.SerializerMethodField(help_text="Newest version, which new jobs use.")

    class Meta:
        model = RegisteredModel
        fields = ["id", "name", "description", "owner", "readers", "created_at", "latest"]

    @extend_schema_field(ModelVersionOutput)
    def get_latest(self, model: Any) -> Any:
        return ModelVersionOutput(model.latest[0]).data


class RegisteredOutput(ModelOutput):
    """Response to a registration: the model, and problems found by reading its script."""

    warning = serializers.SerializerMethodField()

    class Meta(ModelOutput.Meta):
        fields = [*ModelOutput.Meta.fields, "warning"]

    @extend_schema_field({"type": "string", "nullable": True})
    def get_warning(self, model: Any) -> str | None:
        version = model.latest[0]
        return inspect_code(version.folder, version.entry_point).warning


class FileQuery(serializers.Serializer[Any]):
    file = serializers.CharField(default="", max_length=4096, help_text="File whose text to return; default: none.")
    version = serializers.IntegerField(default=None, min_value=1, max_value=2**31 - 1, help_text="Default: the newest.")


class ChangesQuery(serializers.Serializer[Any]):
    old = serializers.IntegerField(
        default=None, min_value=1, max_value=2**31 - 1, help_text="Default: the previous version."
    )
    new = serializers.IntegerField(default=None, min_value=1, max_value=2**31 - 1, help_text="Default: the newest.")


class FilesOutput(serializers.Serializer[Any]):
    files = output_of(queries.CodeFile, "_FileOutput")(many=True)
    #: Text of the requested file; null: none was requested, or it is binary.
    text = serializers.CharField(allow_null=True)


class ChangesOutput(serializers.Serializer[Any]):
    old = serializers.IntegerField()
    new = serializers.IntegerField()
    values = output_of(queries.ValueChange, "_ValueChangeOutput")(many=True)
    files = output_of(
        queries.FileChange, "_FileChangeOutput", lines=output_of(queries.DiffLine, "_LineOutput")(many=True)
    )(many=True)


class TemplateList(ListAPIView[ModelTemplate]):
    """The templates that the user may read; POST adds one from files on the server or an upload."""

    queryset = ModelTemplate.objects.none()
    serializer_class = TemplateOutput
    pagination_class = NamedPages
    parser_classes = PARSERS_WITH_FILES

    def get_queryset(self) -> Any:
        return queries.templates(self.request.user)

    @extend_schema(request=TemplateInput, responses={201: TemplateOutput})
    def post(self, request: Request) -> Response:
        addition = TemplateAddition(**validated(TemplateInput, request.data))
        template = actions.add_template(signed_in(request), addition)
        return Response(_template_output(request, template.name), status=201)


class TemplateView(ByReference, GenericAPIView[ModelTemplate]):
    queryset = ModelTemplate.objects.none()
    serializer_class: Any = TemplateOutput
    what = "template"

    def get_queryset(self) -> Any:
        return queries.templates(self.request.user)


class TemplateDetail(TemplateView, RetrieveAPIView[ModelTemplate]):
    @extend_schema(request=ReadersInput)
    def patch(self, request: Request, reference: str) -> Response:
        """Set who may read the template. Models that were made from it keep their own readers."""
        template, given = self.get_object(), validated(ReadersInput, request.data)
        actions.set_readers(template, given["readers"], signed_in(request))
        return Response(_template_output(request, template.name))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, reference: str) -> Response:
        """Delete the template. Refused (409) if a model was made from it."""
        actions.delete_template(self.get_object(), signed_in(request))
        return Response(status=204)


class TemplateTakeAgain(TemplateView):
    @extend_schema(request=None)
    def post(self, request: Request, reference: str) -> Response:
        """Copy the files at the template's path again. Models made from it keep their copies."""
        template = actions.take_again(self.get_object(), signed_in(request))
        return Response(_template_output(request, template.name))


class TemplateFiles(TemplateView):
    serializer_class = FilesOutput

    @extend_schema(parameters=[FileQuery])
    def get(self, request: Request, reference: str) -> Response:
        """List the files, with the text of one."""
        return _files(self.get_object().folder, validated(FileQuery, request.query_params)["file"])


class ModelList(ListAPIView[RegisteredModel]):
    """All models that the user may read; POST registers one, or the next version of yours."""

    queryset = RegisteredModel.objects.none()
    serializer_class = ModelOutput
    pagination_class = NamedPages
    parser_classes = PARSERS_WITH_FILES

    def get_queryset(self) -> Any:
        return queries.models(self.request.user)

    @extend_schema(request=ModelInput, responses={201: RegisteredOutput})
    def post(self, request: Request) -> Response:
        values = validated(ModelInput, request.data, user=signed_in(request))
        upload = values.pop("upload")
        if upload is None:
            return _registered(request, ModelRegistration(**values))
        with uploads.taken(signed_in(request), upload) as source:
            return _registered(request, ModelRegistration(**{**values, "source": source}))


class ScriptInput(_FilesInput):
    entry_point = serializers.CharField(
        max_length=4096, default="", allow_blank=True, help_text="Script to run; default: the only candidate."
    )
    engine = serializers.ChoiceField(
        RegisteredModelVersion.Engine.choices,
        default="",
        allow_blank=True,
        help_text="Engine; absent or empty: detected from the code.",
    )


class ScriptOutput(serializers.Serializer[RegisteredModelVersion]):
    model = serializers.CharField(source="model.name", help_text="Name of the model, for use in submissions.")
    version = serializers.IntegerField(source="number")
    entry_point = serializers.CharField()
    engine = serializers.ChoiceField(RegisteredModelVersion.Engine.choices)
    processes = serializers.IntegerField(source="declared.processes", allow_null=True, help_text=_PROCESSES)
    reads_data = serializers.BooleanField(source="declared.reads_data", help_text="Whether the script reads a dataset.")
    dataset = serializers.CharField(source="default_dataset")
    warning = serializers.SerializerMethodField(help_text="Error found by reading the script; null: none.")

    @extend_schema_field({"type": "string", "nullable": True})
    def get_warning(self, version: RegisteredModelVersion) -> str | None:
        return inspect_code(version.folder, version.entry_point).warning


class ScriptList(GenericAPIView[Any]):
    serializer_class = ScriptOutput
    parser_classes = PARSERS_WITH_FILES

    @extend_schema(request=ScriptInput, responses={201: ScriptOutput})
    def post(self, request: Request) -> Response:
        """Register a script, or a folder of scripts, for a training. Its name and engine are found from the files.

        Files that equal the newest version make no new one. If several scripts are candidates for the entry point, the
        response is 400 with the code `entry_point`.
        """
        given = validated(ScriptInput, request.data)
        source = replace(given["source"], unwrap=True)
        version = actions.register_script(signed_in(request), source, given["entry_point"], given["engine"])
        return Response(ScriptOutput(version).data, status=201)


class ModelView(ByReference, GenericAPIView[RegisteredModel]):
    queryset = RegisteredModel.objects.none()
    serializer_class: Any = ModelOutput
    what = "model"

    def get_queryset(self) -> Any:
        return queries.models(self.request.user)

    def version(self, number: int | None) -> RegisteredModelVersion:
        """Return the version with this number; without a number, the newest."""
        rows = queries.versions(self.get_object())
        return existing(rows.first() if number is None else rows.filter(number=number).first(), "version")


class ModelDetail(ModelView, RetrieveAPIView[RegisteredModel]):
    @extend_schema(request=ReadersInput)
    def patch(self, request: Request, reference: str) -> Response:
        """Set who may read and train the model. Earlier trainings continue."""
        model, given = self.get_object(), validated(ReadersInput, request.data)
        actions.set_readers(model, given["readers"], signed_in(request))
        return Response(ModelOutput(queries.find_model(signed_in(request), model.name)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, reference: str) -> Response:
        """Delete the model with all its versions. Refused (409) if a training has used one."""
        actions.delete_model(self.get_object(), signed_in(request))
        return Response(status=204)


class ModelClone(ModelView):
    @extend_schema(request=CloneInput, responses={201: RegisteredOutput})
    def post(self, request: Request, reference: str) -> Response:
        """Create a model of yours with code and settings of the newest version."""
        newest, given = self.version(None), validated(CloneInput, request.data)
        registration = ModelRegistration(
            name=given["name"],
            source=newest,
            framework=newest.framework,
            engine=newest.engine,
            default_dataset=newest.default_dataset,
            settings=newest.settings,
            parameters=newest.parameters,
            compat=newest.compat,
            description=newest.model.description,
        )
        return _registered(request, registration)


class ModelVersionList(ListAPIView[RegisteredModelVersion]):
    queryset = RegisteredModelVersion.objects.select_related("template")
    serializer_class = ModelVersionOutput
    pagination_class = NumberedPages

    def filter_queryset(self, queryset: Any) -> Any:
        return queryset.filter(model=existing(queries.find_model(self.request.user, self.kwargs["reference"]), "model"))


class ModelChanges(ModelView):
    serializer_class = ChangesOutput

    @extend_schema(parameters=[ChangesQuery])
    def get(self, request: Request, reference: str) -> Response:
        """Compare two versions."""
        given = validated(ChangesQuery, request.query_params)
        new = self.version(given["new"])
        old = self.version(given["old"] or max(1, new.number - 1))
        values, files = queries.changed_values(old, new), queries.changed_files(old.folder, new.folder)
        changes = {"old": old.number, "new": new.number, "values": values, "files": files}
        return Response(ChangesOutput(changes).data)


class ModelFiles(ModelView):
    serializer_class = FilesOutput

    @extend_schema(parameters=[FileQuery])
    def get(self, request: Request, reference: str) -> Response:
        """List the files of a version, with the text of one."""
        given = validated(FileQuery, request.query_params)
        return _files(self.version(given["version"]).folder, given["file"])


def _template_output(request: Request, name: str) -> Any:
    return TemplateOutput(queries.find_template(request.user, name)).data


def _registered(request: Request, registration: ModelRegistration) -> Response:
    user = signed_in(request)
    version = actions.register(user, registration)
    return Response(RegisteredOutput(queries.find_model(user, version.model.name)).data, status=201)


def _files(folder: Path, name: str) -> Response:
    shown = existing(queries.shown_file(folder, name), "file") if name else None
    answer = {"files": queries.code_files(folder), "text": shown.text if shown else None}
    return Response(FilesOutput(answer).data)


urlpatterns = [
    path("scripts/", ScriptList.as_view(), name="scripts"),
    path("templates/", TemplateList.as_view(), name="templates"),
    path("templates/<str:reference>/", TemplateDetail.as_view(), name="template"),
    path("templates/<str:reference>/take-again/", TemplateTakeAgain.as_view(), name="template-take-again"),
    path("templates/<str:reference>/files/", TemplateFiles.as_view(), name="template-files"),
    path("models/", ModelList.as_view(), name="models"),
    path("models/<str:reference>/", ModelDetail.as_view(), name="model"),
    path("models/<str:reference>/clone/", ModelClone.as_view(), name="model-clone"),
    path("models/<str:reference>/versions/", ModelVersionList.as_view(), name="model-versions"),
    path("models/<str:reference>/changes/", ModelChanges.as_view(), name="model-changes"),
    path("models/<str:reference>/files/", ModelFiles.as_view(), name="model-files"),
]
