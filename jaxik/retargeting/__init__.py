"""Motion retargeting: a recorded motion of a body, or of a hand, as one of a robot with other proportions.

`link_map.py` says which frame follows which body and carries poses over, `contacts.py` keeps feet where they stand,
`hidden.py` knows moments in which a body is not seen, `rigid_pose.py` makes poses of points, and `retarget.py` follows
what comes of it by `track`. Imports what `solvers.tracking` may, and that.
"""

from jaxik.retargeting.contacts import contacts, planted
from jaxik.retargeting.link_map import LinkMap, match
from jaxik.retargeting.retarget import retarget
from jaxik.retargeting.rigid_pose import rigid_pose

__all__ = ["LinkMap", "contacts", "match", "planted", "retarget", "rigid_pose"]
