"""What is asked of every SVG picture: well-formed, in light and dark colours, and nothing drawn outside of it."""
import re
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"
LETTER = 6.0  # width that a letter takes at least, px


def box(element):
    """Left, top, right, bottom."""
    left, top, width, height = map(float, element.get("viewBox").split())
    return left, top, left + width, top + height


def points(element):
    """Where an element is surely drawn; a path by its absolute commands."""
    at = re.match(r"translate\(([-\d.]+),([-\d.]+)\)", element.get("transform", ""))
    if at:
        yield float(at[1]), float(at[2])
    elif element.tag == f"{SVG}path":
        x = y = 0
        for command, first, second in re.findall(r"([MLHV])([-\d.]+)(?:,([-\d.]+))?", element.get("d")):
            x = float(first) if command != "V" else x
            y = float(second) if command in "ML" else float(first) if command == "V" else y
            yield x, y
    elif element.tag == f"{SVG}text":
        x, y, length = float(element.get("x")), float(element.get("y")), LETTER * len(element.text)
        kind = element.get("class", "").split()
        left = x - (length if "end" in kind else length / 2 if "middle" in kind else 0)
        yield from ((left, y), (left + length, y))
    elif element.tag in (f"{SVG}rect", f"{SVG}svg"):
        x, y = (float(element.get(name, 0)) for name in "xy")
        yield from ((x, y), (x + float(element.get("width")), y + float(element.get("height"))))


def drawn(svg):
    """What a picture draws itself, without the pictures in it, but with the places of these."""
    for element in svg:
        yield element
        if element.tag != f"{SVG}svg":
            yield from drawn(element)


def check_inside(svg):
    left, top, right, bottom = box(svg)
    for element in drawn(svg):
        for x, y in points(element):
            assert left <= x <= right and top <= y <= bottom, (element.tag, element.attrib, element.text)
        if element.tag == f"{SVG}svg":
            check_inside(element)


def read(path):
    """A picture that stands by itself, checked."""
    svg = xml.etree.ElementTree.parse(path).getroot()
    assert svg.tag == f"{SVG}svg" and svg.get("aria-label")
    assert "prefers-color-scheme: dark" in svg.findtext(f"{SVG}style")
    check_inside(svg)
    return svg


def words(svg):
    """All that it says: texts, and what marks are labelled with."""
    return [element.text for element in svg.iter() if element.tag in (f"{SVG}text", f"{SVG}title")]
