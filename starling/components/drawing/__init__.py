"""Drawings of an assembled graph: ``draw_text`` for a terminal, ``draw_svg`` for a page.

    assembly = assemble(root, inputs)
    print(draw_text(assembly))
    draw_svg(assembly, "graph.svg")

A graph that could not be assembled is drawn as far as it came: ``SpaceError.assembly`` holds it.
"""

from starling.components.drawing.svg import draw_svg, svg_text
from starling.components.drawing.text import draw_text

__all__ = ["draw_svg", "draw_text", "svg_text"]
