"""What can stand in configurations of `jaxik solve`, `track` and `generate`, as examples that are ones themselves."""

CONFIG_HELP = """\
a configuration (paths in it are relative to its folder):

  robot: panda                    # bundled name, MJCF or URDF file; or a mapping:
  # robot:
  #   source: panda
  #   base: {position: [0, 0, 0.8], rpy: [0, 0, 0]}                  # where it is mounted
  #   frames: [{name: pen, body: hand, position: [0, 0, 0.2]}]       # tool points to add
  tasks:
    tip:                          # a name of your choice
      type: frame
      frame: tcp                  # a site, body or geom; `kind: site` where a name is ambiguous
      position_cost: 1            # a number or one per axis; null: position does not matter
      orientation_cost: 1
      position_tolerance: 1e-4
      orientation_tolerance: 1e-3
      mask: [1, 1, 1, 1, 1, 0]    # weights of single rows, position first
      axes: target                # frame, target or world: axes of costs and mask
      priority: 0                 # of every type; a higher number acts in what lower ones leave free
      target: {sample: 4096}      # where random configurations within the limits have the frame; or
      #       {position: [0.5, 0, 0.4], quaternion: [0, 1, 0, 0]}    # wxyz; or a list of such poses
      #       rotation_vector, rpy or matrix (3x3, or 4x4 without position) in the place of quaternion
      #       {file: targets.npz, position: KEY, quaternion: KEY}
      #       {file: targets.csv, units: {length: mm}}     # columns x,y,z,qw,qx,qy,qz; or a header with
      #                           these names, rx,ry,rz or roll,pitch,yaw; or position: [NAME, NAME, NAME], ...
      #       {from: home}        # where a configuration (written as a start below) has it; in the axes of the world
      #                           moved by offset: [0, 0, 0.1] and turned by turn: {rpy: [0, 0, 0.5]}, or with another
      #                           position or rotation in the place of its own
    rest:
      type: posture
      target: home                # a configuration, or a list of them
      cost: {joint1: 2}           # a number, or by joint and 1 for the others; free_joints: true counts those, too
      priority: 1
    # The other types, each with cost and tolerance, and with {sample: N} and {from: CONFIGURATION} for a target:
    #   {type: relative_frame, frame: A, root: B, target: ...}       # a pose in the axes of root, otherwise as frame
    #   {type: com, subtree: BODY, target: {position: [0, 0, 0.9]}}  # centre of mass; of files, too, and with offset
    #   {type: look_at, frame: A, axis: [0, 0, 1], target: {position: [1, 0, 1]}}
    #   {type: axis_align, frame: A, axis: [0, 0, 1], target: [0, 0, 1]}
    #   {type: joint_coupling, joints: [J, K], ratios: [1, -1], target: 0}
    #   {type: linear_holonomic, matrix: [{J: 1, K: 2}], q0: home, target: [0]}
    #   {type: equality_constraint, equalities: [NAME]}              # of the model; all active ones by default
    #   {type: rolling, hub: A, floor: B, radius: 0.1}               # and omniwheel, with axle: [0, 1, 0]
    #   {type: manipulability, frame: A, mask: [1, 1, 1, 0, 0, 0], axes: frame, target: 0.1}
    #   {type: clearance, distance: 0.05, pairs: [[hand, world]], rows: 8}    # room around shapes, at a cost
    #   {type: distance, distance: 0, pairs: [[hand, boxes/0]]}               # 0 to touch
  limits:                         # []: no limits at all
    margin: 0.01                  # distance to keep from the limits of joints [rad or m]; beside it
                                  # elastic: {margin: {penalty: 0.1}} lets it yield, and keeps the limits themselves
    half_spaces: [{frame: hand, normal: [0, 0, 1], offset: 1.2}]     # frames that stay on one side of a plane
    distances: [{first: hand, second: link0, distance: 0.2}]         # frames that stay so far apart
    tasks: [{task: {type: com, target: {position: [0, 0, 0]}}, lower: [-0.1, -0.1, null], upper: [0.1, 0.1, null]}]
                                  # residuals of tasks between bounds, null for none; largest: of their norm; several
                                  # parts by name: {position: [...], orientation: [...]}
    collision: {margin: 0.005}    # or true: shapes keep apart, from obstacles as well; pairs: [[hand, world]], rows: 8
                                  # in jaxik track, of these three: gain: 0.9, the share of what is left that a step
                                  # may use; or rate: 20 [1/s], by which motion is the same at any dt
  world:                          # the obstacles; also planes: [{normal: [0, 0, 1], offset: 0}],
                                  # spheres: [{position: [0, 0, 1], radius: 0.1}], capsules: [{from, to, radius}],
                                  # cylinders: [{position, rotation, radius, length}], ellipsoids: as boxes,
                                  # hulls: [{position, rotation, corners}], points: {positions, radius}
    boxes: [{position: [0.6, 0, 0.2], size: [0.4, 0.8, 0.02]}]       # whole edges; rotations as of targets
    # field: {heights: ground.csv, spacing: 0.05, position: [0, -1, 0]}     # above a first node; or one of
    #        {points: cloud.npy, radius: 0.01, cell: 0.02}, {cubes: grid.npy, cell: 0.05}: 1 where it is solid,
    #        {distance: grid.npy, cell: 0.05}. Arrays: lists, or files (.npy, .npz, .csv)
  geometry: model                 # which shapes collide; hull, capsule, sphere: what stands for meshes
  constraints:                    # hold before all tasks, in the place of the model's equality constraints; {}: none
    level: {type: axis_align, frame: tcp, axis: [0, 0, 1], target: [0, 0, -1]}   # written as tasks, without priority
                                  # elastic: true, 10 or {penalty: 10, order: 0} in one of these, or in a half space,
                                  # lets it yield where it cannot be held
  fixed_joints: [joint3]          # joints that stay as they start
  start: home                     # home, mid-range, sample, a keyframe, {JOINT: VALUE} or nq values
  options: {max_steps: 100, initial_damping: 0.3, step_tolerance: 1e-5}
  # search: true                  # where the start does not lead there, try others all over the joint space; or
  #         {max_starts: 128, max_steps_per_start: 30, unlimited_range: 1, num_candidates: 8, rank_by: cost}  # or
  # reference, or limits
  units: {length: m, angle: rad}  # of all lengths and angles above: m or mm, rad or deg. Ratios, matrices and
                                  # manipulability are of m and rad, whatever these say
  seed: 0                         # of everything that is sampled
  dtype: float32                  # or float64
  output: solutions.npz
"""

TRACK_HELP = """\
a configuration has the sections of jaxik solve, but for search and options, and track:

  robot: panda
  tasks:
    tip: {frame: tcp, target: {from: home}, gain: 1}       # where a shape starts; one target each. gain: the share of
                                                           # an error that a step corrects; lm_damping as of FrameTask
    rest: {type: posture, target: home, cost: 0.001}
  limits:
    velocity: true                # the robot's own; or a number, or {JOINT: number} [rad/s or m/s]
    acceleration: 10              # a number, or {JOINT: number} [rad/s^2 or m/s^2]
    jerk: 100                     # the same [rad/s^3 or m/s^3]; the others as of jaxik solve
    # elastic: {velocity: 10}     # limits of motion that yield where they cannot be kept: penalty or {penalty, order}
  start: home
  track:
    dt: 0.01                      # duration of a step [s]
    duration: 5                   # of all [s]
    paths:                        # by task; the others stay where they are
      tip: {shape: circle, radius: 0.1, normal: [0, 0, 1], toward: [1, 0, 0], laps: 2, ramp: 0.5}
      # lemniscate: the same; toward points along its length. ramp: how long it speeds up, and slows down [s]
      #    {shape: line, to: [0.2, 0, 0], laps: 1}         # there and back in a lap; half a lap by default
      #    {waypoints: [{from: home, offset: [0, 0.1, 0]}, ...], times: [1, ...]}    # targets, from the task's own on
    damping: 1e-6
    feed_forward: 1               # 0: gains apply to the motion of targets as well, which lags
    continuous: false             # true: with limits: {collision: ...}, no step jumps over anything thin
    # mode: whole                 # the path is known before it sets out; without start that is free, too; and instead
    # longest_step: 0.12          # of damping and feed_forward: what is no jump [rad or m], without a velocity limit
    # mode: planned               # from the start to where the tasks are met, around obstacles, as fast as limits of
    # max_attempts: 8             # speed or acceleration allow; without paths. Also max_looks, reach, shortcuts
"""

DATASET_HELP = """\
a configuration has the sections of jaxik solve, and dataset; a row draws what is sampled:

  robot: panda
  tasks:
    tip: {frame: tcp, target: {sample: 1}}                 # drawn for each row; other targets are one for all
  search: true
  dataset:
    count: 1000000                # rows; or as many as are sampled, or --count
    shard: 131072                 # rows that are solved, written and committed at once: a multiple of 4096
    spread: joints                # or workspace: fewer rows where many configurations have the frame
    keep: all                     # rows with their status; or converged: the others are drawn again
    solutions: 1                  # of each row, best first
    # randomize: {link_lengths: [0.9, 1.1], tool_offset: 0.02, joint_limits: [0.8, 1], base_position: 0.1,
    #             base_rotation: 0.1, obstacles: 0.1}   # robot and obstacles of each row, in motions, too; stored
    # grid: {center: [0, 0, 0.4], size: [2, 2, 1.6], resolution: 0.1, directions: 16}   # [m]: targets at the centres of
                                  # voxels instead of sampled ones: a map of what can be reached

a row is a motion where the configuration has the section track, as jaxik track has it online, with one random path:

  limits: {velocity: true, acceleration: 10}
  start: sample                   # random for each row, the default; or a configuration, as above
  track:
    dt: 0.01                      # duration of a step [s]
    duration: 4                   # of all [s]
    path: {shape: waypoints, waypoints: 3, speed: [0.1, 0.4]}   # through random configurations, evenly in time; speed
                                  # between two of them: the share of its limit that the fastest joint has, from, to
    #     {shape: circle, size: [0.05, 0.15], laps: [1, 2]}     # or line, lemniscate: in a random plane, from the start
  dataset: {count: 10000, shard: 1024, keep: all}               # converged: within the tolerances at all steps

row i follows from the configuration, the seed and i alone: runs that were interrupted go on with --resume, and N runs
with --part 1/N to N/N, on as many machines, make the same bytes as one.
"""
