"""Blocks of a report as its pages show them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.safestring import SafeString

from core.markdown import rendered
from core.roles import Asking
from insights.comparison import comparison_figures
from reports.frozen import TableRow, thawed_chart, thawed_table
from reports.models import ReportBlock
from reports.queries import sources_seen

__all__ = ["COLUMNS", "Shown", "Source", "shown_blocks"]

#: Of the table beside a chart.
COLUMNS = ("Training", "Step", "Seconds since its start", "Value")


@dataclass(frozen=True)
class Source:
    number: int
    name: str
    #: The reader may look at it.
    is_seen: bool


@dataclass(frozen=True)
class Shown:
    block: ReportBlock
    sources: Sequence[Source]
    html: SafeString | None = None
    figure: dict[str, Any] | None = None
    rows: Sequence[TableRow] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of its place on the page."""
        return f"block-{self.block.pk}"

    @property
    def number(self) -> str:
        return str(self.block.pk)

    @property
    def lost(self) -> str:
        """Of a question before it is removed."""
        if self.sources:
            return "What was frozen in it is lost. You can add the training's figures again, as they are then."
        return "Its text is lost."


def shown_blocks(blocks: Sequence[ReportBlock], reader: Asking | None, host: str = "") -> list[Shown]:
    """reader: None for whoever has a link; then nothing leads to a page of this site, whose `host` that is."""
    seen = sources_seen(reader, blocks) if reader is not None else set()
    return [_shown(block, seen, "" if reader is not None else host) for block in blocks]


def _shown(block: ReportBlock, seen: set[int], host: str) -> Shown:
    sources = [Source(number, name, number in seen) for number, name in block.sources]
    if block.kind == ReportBlock.Kind.CHART:
        return Shown(block, sources, figure=_figure(block))
    if block.kind == ReportBlock.Kind.TABLE:
        return Shown(block, sources, rows=thawed_table(block.data))
    return Shown(block, sources, html=rendered(block.text, without_links_to=host))


def _figure(block: ReportBlock) -> dict[str, Any]:
    [figure] = comparison_figures([thawed_chart(block.data)])
    figure["layout"]["meta"]["name"] = f"block-{block.pk}"
    return figure
