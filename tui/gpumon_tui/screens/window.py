"""The properties of a view that decide which keys are told of in it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.visual import Visual

from gpumon.storage.history.query import HOST
from gpumon_tui import palette
from gpumon_tui.keybindings import PAGES, Abilities
from gpumon_tui.render.text_width import Line
from gpumon_tui.state import View
from gpumon_tui.widgets.bars import Footer
from gpumon_tui.widgets.lines import Lines

if TYPE_CHECKING:
    from textual.css.styles import RulesMap
    from textual.style import Style
    from textual.visual import RenderOptions


def abilities_of(view: View) -> Abilities:
    """Return them as they are now."""
    return Abilities(view.is_readonly, view.may_seek, HOST in view.subjects, view.plays)


_SCROLL = frozenset(("up", "down", "pageup", "pagedown", "home", "end"))
_AS_IN_VIM = {
    "j": "down", "k": "up", "g": "home", "G": "end", "ctrl+d": "page_down", "ctrl+f": "page_down", "space": "page_down",
    "ctrl+u": "page_up", "ctrl+b": "page_up",
}  # fmt: skip
"""Keys that scroll as well."""
_PLAIN = RichStyle()
_PAGES = frozenset(map(str, range(1, len(PAGES) + 1)))
"""Keys that lead to a page, from here too."""


EDGE: Line = [Segment("▌", palette.ink("key", "panel")), Segment(" ")]


class Text(Lines):
    """As many rows as there are lines, with an edge at the left."""

    DEFAULT_CSS = "Text { height: auto; }"
    ground = "panel"

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines in a width."""
        return len(self._lines_in(width))

    def lines(self) -> list[Line]:
        return self._lines_in(self.size.width)

    def _lines_in(self, width: int) -> list[Line]:
        return [[*EDGE, *line] for line in ([], *self.told(max(1, width - 4)), [])]

    def told(self, cells: int) -> list[Line]:
        """Return what is told, each line in so many cells."""
        raise NotImplementedError


@lru_cache(maxsize=1024)
def _tinted(style: RichStyle, base: RichStyle, tint: Color) -> RichStyle:
    """Return a style of the page below on the style of the window's screen, in the tint that lies over it."""
    plain = base + style.clear_meta_and_links()
    if not tint.a:
        return plain
    colors = (Color.from_rich_color(one) + tint if one is not None else None for one in (style.color, style.bgcolor))
    return plain + RichStyle.from_color(*(one.rich_color if one is not None else None for one in colors))


class _PageBelow(BackgroundScreen, Visual):
    """The page below a window, tinted. Textual renders it through Rich, which took most of the time of a key."""

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        strips = self.screen._compositor.render_strips()
        styles = {id(below): below for strip in strips for _, below, _ in strip}  # a style's hash takes longer
        tinted = {key: _tinted(below or _PLAIN, style.rich_style, self.color) for key, below in styles.items()}
        return [
            Strip([Segment(text, tinted[id(below)]) for text, below, _ in strip], strip.cell_length) for strip in strips
        ]

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return self.screen.size.width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self.screen.size.height


class Scrolled(ModalScreen[None]):
    """Shows `text`."""

    follows: ClassVar[bool] = False
    """Whether it is drawn again with each frame."""
    own_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that Textual would keep for itself, and that do something here."""

    DEFAULT_CSS = """
    Scrolled { align: center middle; }
    Scrolled > VerticalScroll {
        width: 84; max-width: 100%; height: auto; max-height: 100%; scrollbar-size-vertical: 0;
    }
    """

    def __init__(self, text: Text) -> None:
        super().__init__()
        self._text = text
        self.is_closed = False
        """Keys that were typed before the terminal's next picture still come here; they are for the page below."""

    def render(self) -> RenderableType:
        below = super().render()
        return _PageBelow(below.screen, below.color) if isinstance(below, BackgroundScreen) else below

    def compose(self) -> ComposeResult:
        """Compose the lines in a box that scrolls."""
        yield VerticalScroll(self._text)

    def show(self) -> None:
        """Draw the lines again, in the room that they need now."""
        self._text.refresh(layout=True)
        self._text.show()

    def on_key(self, event: events.Key) -> None:
        """Close, unless the key scrolls."""
        if event.key in _SCROLL or self.is_closed:
            return
        event.stop()
        event.prevent_default()
        if event.key in _AS_IN_VIM:
            getattr(self.query_one(VerticalScroll), f"scroll_{_AS_IN_VIM[event.key]}")(animate=False)
        else:
            self.close()
            if event.key in _PAGES:
                self.app.post_message(Footer.Pressed(event.key))

    def on_click(self) -> None:
        """Close."""
        self.close()

    def take(self, name: str) -> None:
        """Do what one of `own_keys` does."""

    def close(self) -> None:
        """Give the screen back to the page, once."""
        if not self.is_closed:
            self.is_closed = True
            self.dismiss()
