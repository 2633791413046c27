"""Rendering of a report's blocks for its pages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.safestring import SafeString

from core.markdown import rendered
from core.roles import Asking
from insights.comparison import comparison_figures
from reports.frozen import TableRow, thawed_chart, thawed_table
from reports.models import ReportBlock
from reports.queries import visible_sources

__all__ = ["COLUMNS", "BlockView", "Source", "block_views"]

#: Columns of the table view of a chart.
COLUMNS = ("Training", "Step", "Seconds since start", "Value")


@dataclass(frozen=True)
class Source:
    number: int
    name: str
    #: Whether the reader may see the training.
    is_visible: bool


@dataclass(frozen=True)
class BlockView:
    block: ReportBlock
    sources: Sequence[Source]
    html: SafeString | None = None
    figure: dict[str, Any] | None = None
    rows: Sequence[TableRow] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Id of the block's element on the page."""
        return f"block-{self.block.pk}"

    @property
    def number(self) -> str:
        return str(self.block.pk)

    @property
    def lost(self) -> str:
        """Text of the dialog before the block is removed."""
        if self.sources:
            return "The frozen content is lost. You can add the present figures of the training again."
        return "The text is lost."


def block_views(blocks: Sequence[ReportBlock], reader: Asking | None, host: str = "") -> list[BlockView]:
    """Return the blocks as `reader` sees them. None: a visitor by public link, who gets no links to the site `host`."""
    seen = visible_sources(reader, blocks) if reader is not None else set()
    return [_shown(block, seen, "" if reader is not None else host) for block in blocks]


def _shown(block: ReportBlock, seen: set[int], host: str) -> BlockView:
    sources = [Source(number, name, number in seen) for number, name in block.sources]
    if block.kind == ReportBlock.Kind.CHART:
        return BlockView(block, sources, figure=_figure(block))
    if block.kind == ReportBlock.Kind.TABLE:
        return BlockView(block, sources, rows=thawed_table(block.data))
    return BlockView(block, sources, html=rendered(block.text, without_links_to=host))


def _figure(block: ReportBlock) -> dict[str, Any]:
    [figure] = comparison_figures([thawed_chart(block.data)])
    figure["layout"]["meta"]["name"] = f"block-{block.pk}"
    return figure
