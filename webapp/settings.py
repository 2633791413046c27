"""Settings. The only module of the web part that reads the environment; docs/settings.md lists the variables."""

import os
from pathlib import Path

import drf_spectacular_sidecar
from csp.constants import NONE, SELF, UNSAFE_INLINE
from tidepool.version import VERSION

from webapp.collected_static import is_collected
from webapp.environment import Environment, certificate_file, embedded_broker_url, secret_key, with_secrets
from webapp.log_in_settings import group_table, ldap_config, oidc_config

BASE_DIR = Path(__file__).resolve().parent.parent
#: Files of secrets, so that these stand in no process's environment.
_SECRET_FILES = (
    "TIDEPOOL_ADMIN_PASSWORD_FILE",
    "TIDEPOOL_BROKER_REGISTRAR_URL_FILE",
    "TIDEPOOL_BROKER_URL_FILE",
    "TIDEPOOL_DATABASE_URL_FILE",
    "TIDEPOOL_EXECUTOR_BROKER_URL_FILE",
    "TIDEPOOL_LDAP_BIND_PASSWORD_FILE",
    "TIDEPOOL_MAIL_URL_FILE",
    "TIDEPOOL_METRICS_TOKEN_FILE",
    "TIDEPOOL_OIDC_CLIENT_SECRET_FILE",
    "TIDEPOOL_OPTUNA_URL_FILE",
)
_environment = Environment(with_secrets(os.environ, _SECRET_FILES))

# --- Tidepool's own ---------------------------------------------------------------------------------------------------

TIDEPOOL_HOME = _environment.folder("TIDEPOOL_HOME", BASE_DIR / ".tidepool")
TIDEPOOL_DATA_ROOTS = _environment.folders("TIDEPOOL_DATA_ROOTS", TIDEPOOL_HOME / "data")
TIDEPOOL_MODEL_ROOTS = _environment.folders("TIDEPOOL_MODEL_ROOTS", TIDEPOOL_HOME / "models")
TIDEPOOL_RESULTS_ROOT = TIDEPOOL_HOME / "results"
#: File in which `manage.py up` stores the address and password of its broker.
EMBEDDED_BROKER_FILE = TIDEPOOL_HOME / "run" / "broker-url"
_embedded_broker = embedded_broker_url(EMBEDDED_BROKER_FILE, TIDEPOOL_HOME / "run" / "broker.sock")
#: Whether the broker is that of `manage.py up`, which names the file above to its processes.
BROKER_IS_EMBEDDED = _environment.text("TIDEPOOL_BROKER_URL", _embedded_broker) == _embedded_broker
TIDEPOOL_BROKER_URL = _environment.own_broker_url("TIDEPOOL_BROKER_URL", _embedded_broker)
#: Address of the broker with a user who may administer users, one for each host. See `workers.broker_users`.
TIDEPOOL_BROKER_REGISTRAR_URL = _environment.own_broker_url("TIDEPOOL_BROKER_REGISTRAR_URL", TIDEPOOL_BROKER_URL)
#: Address of the broker for a host that joins; "": no host may join.
TIDEPOOL_EXECUTOR_BROKER_URL = _environment.readable_url("TIDEPOOL_EXECUTOR_BROKER_URL", "")
#: Token with which Prometheus may read /metrics; "": only administrators may.
TIDEPOOL_METRICS_TOKEN = _environment.text("TIDEPOOL_METRICS_TOKEN", "")
#: File that describes the fleets, whose commands start and stop hosts; None: there is none.
TIDEPOOL_FLEETS_FILE = Path(_fleets) if (_fleets := _environment.text("TIDEPOOL_FLEETS_FILE", "")) else None
#: Touched by each turn of this process's loop, for health checks; "": none.
TIDEPOOL_ALIVE_FILE = _environment.text("TIDEPOOL_ALIVE_FILE", "")
#: Password of `admin` in a new home; a random one where it is empty.
TIDEPOOL_ADMIN_PASSWORD = _environment.text("TIDEPOOL_ADMIN_PASSWORD", "")
#: A host that has not reported for this long is LOST.
TIDEPOOL_LEASE_SECONDS = _environment.number("TIDEPOOL_LEASE_SECONDS", 30, least=5)
#: Seconds before a host is gone, as a notice says, from which on it drains.
TIDEPOOL_DRAIN_SECONDS = _environment.number("TIDEPOOL_DRAIN_SECONDS", 120, least=1)
#: A rank that is silent for longer is killed, and the others go on.
TIDEPOOL_STUCK_SECONDS = _environment.number("TIDEPOOL_STUCK_SECONDS", 60, least=2)
#: A rank whose script has not come to its training so long after its start is killed.
TIDEPOOL_STRAGGLER_SECONDS = _environment.number("TIDEPOOL_STRAGGLER_SECONDS", 600, least=20)
TIDEPOOL_LAUNCH_SECONDS = _environment.number("TIDEPOOL_LAUNCH_SECONDS", 1800, least=10)
#: Full origins that may open the site and its websocket besides the one that the browser asked for.
TIDEPOOL_ORIGINS = _environment.words("TIDEPOOL_ORIGINS", "")
TIDEPOOL_HTTPS = _environment.flag("TIDEPOOL_HTTPS")
#: Certificate by which clients trust this site; `dlicmd.py` is handed out with it. `up --wmla-ports` creates one.
TIDEPOOL_CERTIFICATE_FILE = _environment.folder("TIDEPOOL_CERTIFICATE_FILE", certificate_file(TIDEPOOL_HOME))
#: Addresses and networks of the web servers in front: what these say about who asks is believed.
TIDEPOOL_TRUSTED_PROXIES = _environment.networks("TIDEPOOL_TRUSTED_PROXIES")
#: Caps of an uploaded archive: what is written, not what the archive says about itself.
TIDEPOOL_UPLOAD_MAX_BYTES = int(_environment.number("TIDEPOOL_UPLOAD_MAX_BYTES", 2 * 1024**3, least=1))
TIDEPOOL_UPLOAD_MAX_FILES = int(_environment.number("TIDEPOOL_UPLOAD_MAX_FILES", 10_000, least=1))
#: Bytes on the disk that the trainings of a user may take; 0: as many as there is room for.
TIDEPOOL_USER_DISK = _environment.size("TIDEPOOL_USER_DISK")
#: Bytes on the disk that a training may take before its user's further trainings are refused; 0: as many as there are.
TIDEPOOL_TRAINING_DISK = _environment.size("TIDEPOOL_TRAINING_DISK")
#: Currency of the prices of GPU-hours: a word or sign that stands behind amounts.
TIDEPOOL_CURRENCY = _environment.text("TIDEPOOL_CURRENCY", "EUR")

#: Address where users reach the site, such as https://gpus.example.org, for links in alerts; "": alerts have no links.
TIDEPOOL_SITE_URL = _environment.text("TIDEPOOL_SITE_URL", "").rstrip("/")
#: Addresses and networks beside the public ones that alerts may be sent to.
TIDEPOOL_ALERT_NETWORKS = _environment.networks("TIDEPOOL_ALERT_NETWORKS")
#: The mail server for alerts, as Apprise writes it; "": no alerts go by e-mail.
TIDEPOOL_MAIL_URL = _environment.mail_url("TIDEPOOL_MAIL_URL")

#: Largest number of days for which a report may be read by a link without a log-in; 0 disables such links.
TIDEPOOL_PUBLIC_REPORT_DAYS = int(min(3650, _environment.number("TIDEPOOL_PUBLIC_REPORT_DAYS", 0, least=0)))

#: The socket on which MLflow's server listens; "": the site has none.
TIDEPOOL_MLFLOW_SOCKET = _environment.text("TIDEPOOL_MLFLOW_SOCKET", "")
#: Address where trainings reach MLflow, through the site; "": scripts log nothing there by themselves.
TIDEPOOL_MLFLOW_URL = _environment.text("TIDEPOOL_MLFLOW_URL", "")
#: Host name of its own for its pages, such as https://mlflow.example.org; "": they are below the site's.
TIDEPOOL_MLFLOW_ORIGIN = _environment.origin("TIDEPOOL_MLFLOW_ORIGIN")
#: The Python of its environment.
TIDEPOOL_MLFLOW_PYTHON = _environment.folder("TIDEPOOL_MLFLOW_PYTHON", BASE_DIR / ".venv-mlflow" / "bin" / "python")

#: Database to which studies are copied for Optuna, as its RDBStorage takes it; "": they are not copied.
TIDEPOOL_OPTUNA_URL = _environment.optuna_url("TIDEPOOL_OPTUNA_URL")

#: File with the key that encrypts the secrets of users. Keep a copy of it apart from backups of the database.
TIDEPOOL_SECRETS_KEY_FILE = _environment.folder("TIDEPOOL_SECRETS_KEY_FILE", TIDEPOOL_HOME / "secrets-key")
USER_SECRETS_KEY = secret_key(TIDEPOOL_SECRETS_KEY_FILE)

# --- Django -----------------------------------------------------------------------------------------------------------

SECRET_KEY = secret_key(TIDEPOOL_HOME / "secret-key")
DEBUG = _environment.flag("TIDEPOOL_DEBUG")
ALLOWED_HOSTS = _environment.host_names("TIDEPOOL_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")

INSTALLED_APPS = [
    "webapp",  # before staticfiles, whose command it extends
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "channels",
    "csp",
    "drf_spectacular",
    "rest_framework",
    "core",
    "accounts",
    "datasets",
    "models_registry",
    "workers",
    "jobs",
    "usage",
    "insights",
    "reports",
    "replay",
    "studies",
    "capacity",
    "wmla",
    "tracking",
    "alerts",
]

MIDDLEWARE = [
    "webapp.metrics.CountRequests",
    "webapp.middleware.TellsVersion",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "webapp.middleware.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "webapp.form_pages.FormAddresses",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "webapp.middleware.OwnOrigin",
    "webapp.middleware.LoginRequired",
    "webapp.middleware.StorableValues",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "core.pages.role_of_reader",
                "workers.lateness.in_templates",
                "webapp.script_constants.in_templates",
                "webapp.help.page_help.in_templates",
            ],
        },
    }
]

DATABASES = {"default": _environment.database("TIDEPOOL_DATABASE_URL", TIDEPOOL_HOME / "tidepool.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en-us"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
_SWAGGER_UI = Path(drf_spectacular_sidecar.__file__).parent / "static/drf_spectacular_sidecar/swagger-ui-dist"
STATICFILES_DIRS: list[Path | tuple[str, Path]] = [BASE_DIR / "static", ("vendor/swagger-ui", _SWAGGER_UI)]
STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
TIDEPOOL_STATIC_ROOT = _environment.folder("TIDEPOOL_STATIC_ROOT", BASE_DIR / ".static")
_collected = is_collected(TIDEPOOL_STATIC_ROOT, STATICFILES_DIRS)
STATIC_ROOT = TIDEPOOL_STATIC_ROOT if _collected else None
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "webapp.static_files.HashedFiles"
        if _collected
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not _collected
# Seconds that browsers may cache files without a hash in their names; files with a hash are kept for good.
WHITENOISE_MAX_AGE = 60

# --- Log-in -----------------------------------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "accounts.authentication.Passwords"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
#: The organization's provider for log-in by OpenID Connect; None: there is none.
OIDC = oidc_config(_environment)
#: The organization's directory, whose passwords are valid here; None: there is none.
LDAP = ldap_config(_environment)
if LDAP is not None:
    AUTHENTICATION_BACKENDS.insert(1, "accounts.organization.ldap.Directory")
#: Table of what the provider's groups get here; None: there is no provider.
LOGIN_GROUPS = group_table(_environment, is_needed=OIDC is not None or LDAP is not None)
#: Seconds after which a session that began at the provider ends, so that it decides again.
PROVIDER_SESSION_SECONDS = int(_environment.number("TIDEPOOL_LOGIN_HOURS", 12, least=0.1) * 3600)

AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
# No header: webapp/client_addresses.py has read those of trusted servers, and nobody else's may say who asks.
AXES_CLIENT_IP_CALLABLE = "accounts.authentication.address_of"
AXES_LOCKOUT_CALLABLE = "webapp.views.locked_out"

SESSION_ENGINE = "accounts.sessions"
SESSION_COOKIE_NAME = "tidepool_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_NAME = "tidepool_csrf"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = TIDEPOOL_ORIGINS
CSRF_FAILURE_VIEW = "webapp.views.csrf_failure"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = TIDEPOOL_HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if TIDEPOOL_HTTPS else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        # Plotly adds an empty <style> element, which it fills by script (this is the hash of nothing), and writes style
        # attributes into its labels.
        "style-src-elem": [SELF, "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"],
        "style-src-attr": [UNSAFE_INLINE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024**2
DATA_UPLOAD_MAX_NUMBER_FIELDS = 200
FILE_UPLOAD_PERMISSIONS = 0o600

# --- API --------------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.authentication.BearerToken",
        "accounts.authentication.BasicLogin",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["core.roles.SignedIn"],
    "DEFAULT_PARSER_CLASSES": ["core.rest.StrictJSONParser", "rest_framework.parsers.FormParser"],
    "DEFAULT_RENDERER_CLASSES": ["core.rest.StrictJSONRenderer"],
    "DEFAULT_PAGINATION_CLASS": "core.rest.Pages",
    "DEFAULT_SCHEMA_CLASS": "core.schema.Described",
    # The schema says what an address takes; what OPTIONS would say of a view is guessed from it, and it need not fit.
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "webapp.views.api_refused",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Tidepool",
    "DESCRIPTION": "Datasets, models, trainings and the GPUs that they share.",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_PERMISSIONS": ["core.roles.SignedIn"],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "Adaptive": "jobs.models.Job.Adaptive",
        "AlertChannelKind": "alerts.alert_kinds.ChannelKind",
        "AlertKind": "alerts.alert_kinds.Kind",
        "Autolog": "jobs.models.Job.Autolog",
        "DatasetKind": "datasets.models.Dataset.Kind",
        "DatasetVersionState": "datasets.models.DatasetVersion.State",
        "Exactness": "jobs.models.Job.Exactness",
        "ExecState": "wmla.job_names.EXEC_WORDS",
        "InstanceGroupState": "jobs.models.InstanceGroup.State",
        "JobState": "jobs.states.JobState",
        "Placement": "jobs.models.Job.Placement",
        "RecordingState": "insights.recordings.states.RECORDING_STATES",
        "ReplayState": "replay.models.Replay.State",
        "ResourceGroupKind": "workers.models.ResourceGroup.Kind",
        "SearchState": "wmla.hypersearch_names.SEARCH_WORDS",
    },
}

# --- Celery -----------------------------------------------------------------------------------------------------------

CELERY_BROKER_URL = TIDEPOOL_BROKER_URL
CELERY_IMPORTS = ["jobs.tasks", "usage.tasks"]
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 10,
    "socket_connect_timeout": 3,
    "retry_on_timeout": False,
    # Publishing gives up soon: the scheduler says everything again two seconds later.
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.2,
}
CELERY_TASK_PUBLISH_RETRY = False

# --- Logging ----------------------------------------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "axes": {"level": "WARNING"},
        # Two lines per report of a host, which comes every second.
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        # One for each call of MLflow.
        "httpx": {"level": "WARNING"},
    },
}
