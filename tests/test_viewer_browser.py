"""The live page in a browser: what it draws, that it asks no other machine, and that a target is dragged by mouse."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.viewer.aims import problem_of
from jaxik.viewer.view import View, write_page

CHROMIUM = Path("/usr/bin/chromium")
OWN = ("http://127.0.0.1", "ws://127.0.0.1", "file:", "data:", "blob:")
pytestmark = [exhaustive, pytest.mark.skipif(not CHROMIUM.exists(), reason="no browser: apt-get install chromium")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        flags = ["--no-sandbox", "--use-gl=swiftshader", "--enable-unsafe-swiftshader"]
        opened = play.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served() -> Iterator[View]:
    robot = jaxik.load_robot("panda")
    view = View(problem_of(robot, robot.q_home), np.asarray(robot.q_home), port=8080)
    yield view
    view.close()


def until(met: Callable[[], Any], seconds: float = 120.0) -> Any:
    ended = time.monotonic() + seconds
    while not (found := met()):
        assert time.monotonic() < ended, met
        time.sleep(0.2)
    return found


def shot(page: Any, path: Path) -> np.ndarray:
    from PIL import Image

    page.screenshot(path=path, timeout=120_000)
    return np.asarray(Image.open(path).convert("RGB"), int)


def has_robot(picture: np.ndarray) -> bool:
    # Between the notice above, the axes below and the panel beside nothing else is blue.
    half = picture[150:430, :450]
    blue = (half[..., 2] > half[..., 0] + 40) & (half[..., 1] > half[..., 0] + 10)
    return 0.003 < blue.mean() < 0.5


def opened(browser: Any, address: str) -> tuple[Any, list[str]]:
    page, asked = browser.new_page(viewport={"width": 800, "height": 500}), []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    page.goto(address)
    return page, asked


@pytest.mark.parametrize("kind", ["live", "file", "notebook"])
def test_a_page_draws_the_robot_and_asks_no_other_machine(
    browser: Any, served: View, tmp_path: Path, kind: str
) -> None:
    robot = jaxik.load_robot("panda")
    if kind == "file":
        address = write_page(tmp_path / "page.html", robot, ghosts=robot.sample(jax.random.key(0), (5,))).as_uri()
    elif kind == "notebook":
        (tmp_path / "cell.html").write_text(served._repr_html_())
        address = (tmp_path / "cell.html").as_uri()
    else:
        address = served.url
    page, asked = opened(browser, address)
    until(lambda: has_robot(shot(page, tmp_path / f"{kind}.png")))
    assert asked and all(url.startswith(OWN) for url in asked), asked
    page.close()


def pixel_of(page: Any, served: View, point: np.ndarray) -> tuple[float, float]:
    """Where a point (3,) [m] is on the page."""
    from viser.transforms import SO3

    [client] = served._server.get_clients().values()
    camera, box = client.camera, page.locator("canvas").first.bounding_box()
    right, down, ahead = SO3(camera.wxyz).inverse() @ (point - camera.position)
    focal = box["height"] / 2 / np.tan(camera.fov / 2)
    return box["x"] + box["width"] / 2 + focal * right / ahead, box["y"] + box["height"] / 2 + focal * down / ahead


def test_a_target_is_dragged_by_mouse_and_the_tip_follows_to_a_millimetre(
    browser: Any, served: View, tmp_path: Path
) -> None:
    robot = jaxik.load_robot("panda")
    page, _ = opened(browser, served.url)
    until(lambda: has_robot(shot(page, tmp_path / "before.png")))
    handle, q = served._scene._handles["tcp"], []
    shows = served.follower._show
    served.follower._show = lambda shown: (q.append(shown.q), shows(shown))
    start = np.array(handle.position)
    # The arrow of the z axis of the tool, which points down.
    grip = start - np.array([0.0, 0.0, 0.6 * handle.scale])
    x, y = pixel_of(page, served, grip)
    end = pixel_of(page, served, grip - np.array([0.0, 0.0, 0.15]))
    page.mouse.move(x, y)
    time.sleep(1.0)
    page.mouse.down()
    for share in np.linspace(0, 1, 12):
        page.mouse.move(x + share * (end[0] - x), y + share * (end[1] - y))
        time.sleep(0.1)
    page.mouse.up()
    until(lambda: np.linalg.norm(np.array(handle.position) - start) > 0.1)

    def tip() -> np.ndarray:
        return np.asarray(robot.frame_pose(served.q, "tcp").translation())

    until(lambda: np.linalg.norm(tip() - np.array(handle.position)) < 1e-3, 30)
    shot(page, tmp_path / "after.png")
    np.testing.assert_allclose(handle.position, start - [0, 0, 0.15], atol=0.02)
    assert bool(jnp.all(robot.check_limits(np.stack(q))))
    page.close()
