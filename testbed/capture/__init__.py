# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What went over the links, frame by frame, for other programs to read?

Files of frames and who reads them; what was booked of them stands in `testbed.transport`.
"""
