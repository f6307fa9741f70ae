"""Read a dataset by lerobot itself, in an interpreter that has it, and save what a loader of PyTorch gives.

    python tests/read_lerobot.py FOLDER FRAMES.npz

It imports nothing of jaxik: lerobot may be installed where jaxik is not. torchvision, which lerobot imports for images
and videos, has none to read here: where it is missing, names stand in for it.
"""

import importlib.machinery
import importlib.util
import sys
import types

import numpy as np


def stand_in_for_torchvision() -> None:
    """What lerobot 0.4 asks of torchvision when it is imported."""
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
        if "." in name:
            setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    transforms = sys.modules["torchvision.transforms.v2"]
    transforms.Transform, transforms.functional = object, types.ModuleType("functional")  # type: ignore[attr-defined]


def main(folder: str, out: str) -> None:
    """Frames in order as a loader has them, an episode alone, and each frame's next two actions."""
    if importlib.util.find_spec("torchvision") is None:
        stand_in_for_torchvision()
    from lerobot.datasets.lerobot_dataset import LeRobotDataset  # pyright: ignore[reportMissingImports]
    from torch.utils.data import DataLoader  # pyright: ignore[reportMissingImports]

    whole = LeRobotDataset("me/motions", root=folder)
    found = {"num_frames": whole.num_frames, "num_episodes": whole.num_episodes, "fps": whole.fps}
    batches = list(DataLoader(whole, batch_size=32))
    found |= {name: np.concatenate([b[name] for b in batches]) for name in batches[0] if name != "task"}
    found["task"] = np.concatenate([b["task"] for b in batches])
    one = LeRobotDataset("me/motions", root=folder, episodes=[whole.num_episodes - 1])
    found["last/action"] = np.stack([one[i]["action"] for i in range(len(one))])
    ahead = LeRobotDataset("me/motions", root=folder, delta_timestamps={"action": [0.0, 1 / whole.fps]})
    frames = [ahead[i] for i in range(whole.num_frames // whole.num_episodes)]
    found |= {"ahead/action": np.stack([f["action"] for f in frames])}
    found |= {"ahead/is_pad": np.stack([f["action_is_pad"] for f in frames])}
    shuffled = next(iter(DataLoader(whole, batch_size=64, shuffle=True)))
    found |= {"shuffled/index": shuffled["index"], "shuffled/action": shuffled["action"]}
    for key, values in whole.meta.stats["action"].items():
        found[f"stats/action/{key}"] = values
    np.savez(out, **{name: np.asarray(value) for name, value in found.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
