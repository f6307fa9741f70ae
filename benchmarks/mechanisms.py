"""Mechanisms with closed loops, as MJCF: a 6-UPS Stewart platform in two forms, a hexapod of six 3R legs."""

import numpy as np

# Anchors of the six legs on base and platform: radius [m] and angles [degrees], pairs turned against each other.
BASE_RADIUS, PLATFORM_RADIUS, HEIGHT = 0.5, 0.3, 0.6
BASE_ANGLES = np.radians([-10, 10, 110, 130, 230, 250])
PLATFORM_ANGLES = np.radians([-50, 50, 70, 170, 190, 290])


def _ring(radius: float, angles: np.ndarray) -> np.ndarray:
    return np.stack([radius * np.cos(angles), radius * np.sin(angles), np.zeros(len(angles))], axis=1)


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{value:.9g}" for value in values)


def stewart(free_platform: bool) -> str:
    """A 6-UPS platform; the platform is a free body, or hangs by a ball joint on the first leg."""
    base, platform = _ring(BASE_RADIUS, BASE_ANGLES), _ring(PLATFORM_RADIUS, PLATFORM_ANGLES)
    top = np.array([0.0, 0.0, HEIGHT])
    legs, loops = [], []
    for k in range(6):
        along = top + platform[k] - base[k]
        length = np.linalg.norm(along)
        tip = ""
        if k == 0 and not free_platform:
            tip = f"""<body name="platform" pos="0 0 {length:.9g}" quat="{_numbers(_turn_back(along))}">
                <joint name="ball" type="ball" pos="0 0 0"/>
                <geom size=".05" mass="1"/><site name="tool" pos="{_numbers(-platform[0])}"/></body>"""
        legs.append(
            f"""<body name="leg{k}" pos="{_numbers(base[k])}" zaxis="{_numbers(along)}">
              <joint name="u{k}" axis="1 0 0" range="-1.5 1.5"/><joint name="v{k}" axis="0 1 0" range="-1.5 1.5"/>
              <geom size=".02" mass=".1"/>
              <body name="rod{k}"><joint name="p{k}" type="slide" axis="0 0 1" range="-.3 .4"/>
                <geom size=".02" mass=".1"/>{tip}
                <site name="end{k}" pos="0 0 {length:.9g}"/></body></body>"""
        )
        if free_platform or k:
            offset = platform[k] if free_platform else platform[k] - platform[0]
            loops.append((k, length, offset))
    body = (
        f"""<body name="platform" pos="0 0 {HEIGHT}"><freejoint name="free"/><geom size=".05" mass="1"/>
        <site name="tool"/></body>"""
        if free_platform
        else ""
    )
    connects = "".join(
        f'<connect name="loop{k}" body1="rod{k}" body2="platform" anchor="0 0 {length:.9g}"/>' for k, length, _ in loops
    )
    return f"""<mujoco model="stewart"><compiler angle="radian" autolimits="true"/>
      <worldbody>{body}{"".join(legs)}</worldbody><equality>{connects}</equality></mujoco>"""


def _turn_back(along: np.ndarray) -> np.ndarray:
    """Quaternion wxyz, in a leg's axes, of the world's: of the least rotation from `along` to z."""
    along = along / np.linalg.norm(along)
    axis = np.cross(along, [0, 0, 1])
    half = np.arccos(along[2]) / 2
    return np.array([np.cos(half), *(np.sin(half) * axis / np.linalg.norm(axis))])


def hexapod() -> str:
    """A body on six legs: yaw at the hip, pitch at hip and knee; `foot0` to `foot5` are the feet."""
    legs = []
    for k, (x, y, _) in enumerate(_ring(0.2, np.radians([0, 60, 120, 180, 240, 300]))):
        legs.append(
            f"""<body name="hip{k}" pos="{x:.9g} {y:.9g} 0" euler="0 0 {np.arctan2(y, x):.9g}">
              <joint name="yaw{k}" axis="0 0 1" range="-1 1"/><geom size=".02" mass=".1"/>
              <body name="thigh{k}" pos=".06 0 0"><joint name="lift{k}" axis="0 -1 0" range="-1.2 1.2"/>
                <geom size=".02" mass=".1"/>
                <body name="shin{k}" pos=".15 0 .05"><joint name="knee{k}" axis="0 -1 0" range="-1.5 1.0"/>
                  <geom size=".02" mass=".1"/><site name="foot{k}" pos=".06 0 -.25"/></body></body></body>"""
        )
    return f"""<mujoco model="hexapod"><compiler angle="radian" autolimits="true"/><worldbody>
      <body name="body" pos="0 0 .2"><freejoint name="free"/><geom size=".1" mass="3"/><site name="center"/>
      {"".join(legs)}</body></worldbody></mujoco>"""
