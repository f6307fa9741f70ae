"""Robot models in wheels on the package index: where each lies and what it must contain."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Wheel:
    """A release on the package index, or an installed package where ``sha256`` is None."""

    package: str
    version: str
    sha256: str | None


@dataclass(frozen=True)
class RobotModel:
    """Where a model lies and what it must contain.

    ``joints`` counts joints by MuJoCo type, as parsed. ``needs_kinematics_only``: C MuJoCo refuses the file as it
    stands, for the reason in ``remarks``.
    """

    name: str
    wheel: Wheel
    path: str
    joints: Mapping[str, int]
    remarks: str = ""
    needs_kinematics_only: bool = False
    folder: str | None = None  # what is unpacked; None: the folder that holds the file

    @property
    def unpacked(self) -> str:
        return self.folder or str(PurePosixPath(self.path).parent)


FRAX = Wheel("frax", "0.1.0", "79d550da88d8a3150f98acb74b05a85393ba4b861846fe059c02f0852c6b0708")
MJX = Wheel("mujoco-mjx", "installed", None)
OGBENCH = Wheel("ogbench", "1.2.2", "e0f809be281f2e222283283a300a5cf04fbd6947a6a7b84846fb9da2c30a088d")
ALOHA = Wheel("gym-aloha", "0.1.5", "1794dd9a1146268a9b56f4a4931bcba69ca27714c2ac9ac146e471801bf0c7b3")
MJLAB = Wheel("mjlab", "1.6.0", "03d003854e2f44c48330c6dcf4c2253ff7641bb569747846825a21b9efa8540b")
HIL = Wheel("gym-hil", "0.1.14", "9a2799d47a4561e0b0bb8d37fb3d84934657240be328d13991ea06758726533d")
UPKIE = Wheel("upkie-description", "2.2.0", "e78efacceac713e1c285df79795096b12f2eca28a70f3b2e24f0c5f6aabc8e3f")
GYMNASIUM = Wheel("gymnasium", "1.4.0", "1cb947c59e7c72d8eabb2c2274c00cd20948e69f8452a9ef4092223be24fdf0e")
REACHY = Wheel("reachy-mini", "1.13.0", "11776b3b1283e0f8b0c9f5c79301f4be33d0b21ce5756e1253d57d4afabdb8a3")
PLAYGROUND = Wheel("playground", "0.2.0", "c0f2df426186bd681d8f536cead80d43460ea6431db09ced32251910d4eef850")

_MJX = "mjx/test_data"
_OGB = "ogbench/manipspace/descriptions"
_LAB = "mjlab/asset_zoo/robots"
_GYM = "gymnasium/envs/mujoco/assets"
_LOCO = "mujoco_playground/_src/locomotion"
_HAND = "mujoco_playground/_src/manipulation"
_NO_MESHES = "meshes are not shipped"

_ENTRIES = (
    RobotModel(
        "frax_panda",
        FRAX,
        "frax/assets/franka_panda/bubblify/panda_spherized.urdf",
        {"hinge": 7},
        "URDF, sphere collision; limits wider than Franka's",
    ),
    RobotModel(
        "frax_panda_meshes",
        FRAX,
        "frax/assets/franka_panda/panda.urdf",
        {"hinge": 7},
        f"URDF; {_NO_MESHES}",
        needs_kinematics_only=True,
    ),
    RobotModel(
        "frax_iiwa14",
        FRAX,
        "frax/assets/iiwa/bubblify/iiwa14_spherized.urdf",
        {"hinge": 7},
        "URDF, sphere collision; the package has no MJCF of this arm",
    ),
    RobotModel(
        "frax_iiwa14_meshes",
        FRAX,
        "frax/assets/iiwa/iiwa14.urdf",
        {"hinge": 7},
        f"URDF; {_NO_MESHES}",
        needs_kinematics_only=True,
    ),
    RobotModel(
        "frax_g1_urdf",
        FRAX,
        "frax/assets/unitree_g1/g1_29dof_rev_1_0.urdf",
        {"hinge": 29},
        f"URDF, fixed base; {_NO_MESHES}",
        needs_kinematics_only=True,
    ),
    RobotModel(
        "frax_g1_floating_urdf",
        FRAX,
        "frax/assets/unitree_g1/floating_g1_29dof_rev_1_0.urdf",
        {"slide": 3, "hinge": 32},
        f"URDF, base of six one-joint links without mass; {_NO_MESHES}",
        needs_kinematics_only=True,
    ),
    RobotModel(
        "frax_g1",
        FRAX,
        "frax/assets/unitree_g1/g1_29dof_rev_1_0.xml",
        {"free": 1, "hinge": 29},
        f"MJCF; {_NO_MESHES}",
        needs_kinematics_only=True,
    ),
    RobotModel("frax_a2_urdf", FRAX, "frax/assets/unitree_a2/a2.urdf", {"hinge": 12}, "URDF, fixed base"),
    RobotModel(
        "frax_a2",
        FRAX,
        "frax/assets/unitree_a2/a2.xml",
        {"free": 1, "hinge": 12},
        f"MJCF; {_NO_MESHES}",
        needs_kinematics_only=True,
    ),
    RobotModel("shadow_hand", MJX, f"{_MJX}/shadow_hand/right_hand.xml", {"hinge": 24}, "dexterous hand"),
    RobotModel("barkour", MJX, f"{_MJX}/barkour_v0/assets/barkour_v0_mjx.xml", {"free": 1, "hinge": 12}, "quadruped"),
    RobotModel(
        "mjx_humanoid",
        MJX,
        f"{_MJX}/humanoid/humanoid.xml",
        {"free": 1, "hinge": 21},
        "three hinges on one body with one anchor; three keyframes",
    ),
    RobotModel(
        "pendula",
        MJX,
        f"{_MJX}/pendula.xml",
        {"free": 2, "ball": 3, "slide": 4, "hinge": 11},
        "every joint type, two mocap bodies",
    ),
    RobotModel(
        "mjx_sensors",
        MJX,
        f"{_MJX}/sensor/sensor.xml",
        {"free": 4, "ball": 2, "slide": 3, "hinge": 6},
        "every joint type, 13 sites",
    ),
    RobotModel("ur5e", OGBENCH, f"{_OGB}/universal_robots_ur5e/ur5e.xml", {"hinge": 6}, "rounded lengths, a home key"),
    RobotModel(
        "robotiq_2f85",
        OGBENCH,
        f"{_OGB}/robotiq_2f85/2f85.xml",
        {"hinge": 8},
        "closed loops: two connects, one joint coupling",
    ),
    RobotModel(
        "reachy_mini",
        REACHY,
        "reachy_mini/descriptions/reachy_mini/mjcf/reachy_mini.xml",
        {"hinge": 9, "ball": 7},
        "a Stewart platform as a head: five connects; 24 MB",
    ),
    RobotModel(
        "aloha",
        ALOHA,
        "gym_aloha/assets/bimanual_viperx_transfer_cube.xml",
        {"free": 1, "hinge": 12, "slide": 4},
        "two arms and a free cube, included files, one keyframe",
    ),
    RobotModel(
        "aloha_mocap",
        ALOHA,
        "gym_aloha/assets/bimanual_viperx_end_effector_transfer_cube.xml",
        {"free": 1, "hinge": 12, "slide": 4},
        "the two grippers are welded to mocap bodies",
    ),
    RobotModel(
        "mjlab_g1", MJLAB, f"{_LAB}/unitree_g1/xmls/g1.xml", {"free": 1, "hinge": 29}, folder=f"{_LAB}/unitree_g1/xmls"
    ),
    RobotModel("mjlab_go1", MJLAB, f"{_LAB}/unitree_go1/xmls/go1.xml", {"free": 1, "hinge": 12}, "quadruped"),
    RobotModel(
        "yam", MJLAB, f"{_LAB}/i2rt_yam/xmls/yam.xml", {"hinge": 6, "slide": 2}, "fingers coupled by an equality"
    ),
    RobotModel("gym_hil_panda", HIL, "gym_hil/assets/panda.xml", {"hinge": 15}, "Panda with a closed-loop 2F-85"),
    RobotModel(
        "upkie",
        UPKIE,
        "upkie_description/urdf/upkie.urdf",
        {"hinge": 6},
        "URDF, wheels without limits, 41 links of which 35 are fixed",
        folder="upkie_description",
    ),
    RobotModel("gym_humanoid", GYMNASIUM, f"{_GYM}/humanoid.xml", {"free": 1, "hinge": 17}, "five keyframes"),
    RobotModel("gym_ant", GYMNASIUM, f"{_GYM}/ant.xml", {"free": 1, "hinge": 8}),
    RobotModel(
        "gym_walker2d",
        GYMNASIUM,
        f"{_GYM}/walker2d_v5.xml",
        {"slide": 2, "hinge": 7},
        "planar base: slide, slide, hinge on one body, nonzero ref",
    ),
    RobotModel(
        "berkeley_humanoid",
        PLAYGROUND,
        f"{_LOCO}/berkeley_humanoid/xmls/berkeley_humanoid_mjx_feetonly.xml",
        {"free": 1, "hinge": 12},
        _NO_MESHES,
        needs_kinematics_only=True,
    ),
    RobotModel(
        "spot",
        PLAYGROUND,
        f"{_LOCO}/spot/xmls/spot_mjx.xml",
        {"free": 1, "hinge": 12},
        _NO_MESHES,
        needs_kinematics_only=True,
    ),
    RobotModel(
        "apollo",
        PLAYGROUND,
        f"{_LOCO}/apollo/xmls/apollo_mjx_feetonly.xml",
        {"free": 1, "hinge": 32},
        f"{_NO_MESHES}; contact pairs name a floor that is in the scene file",
        needs_kinematics_only=True,
    ),
    RobotModel(
        "t1",
        PLAYGROUND,
        f"{_LOCO}/t1/xmls/t1_mjx_feetonly.xml",
        {"free": 1, "hinge": 23},
        _NO_MESHES,
        needs_kinematics_only=True,
    ),
    RobotModel(
        "leap_hand",
        PLAYGROUND,
        f"{_HAND}/leap_hand/xmls/leap_rh_mjx.xml",
        {"hinge": 16},
        _NO_MESHES,
        needs_kinematics_only=True,
    ),
    RobotModel(
        "playground_aloha",
        PLAYGROUND,
        f"{_HAND}/aloha/xmls/mjx_aloha.xml",
        {"hinge": 12, "slide": 4},
        f"{_NO_MESHES}; two joint couplings",
        needs_kinematics_only=True,
    ),
)
MODELS: dict[str, RobotModel] = {entry.name: entry for entry in _ENTRIES}
