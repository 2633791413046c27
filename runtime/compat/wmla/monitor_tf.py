"""WMLA's `monitor_tf`, which is not here: a script that imports it is told what there is instead."""

from _wmla.absent import refuse

refuse(__name__)
