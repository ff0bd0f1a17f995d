/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* A page that has nothing to choose: its pictures are drawn where it is written. */

themes();
copyButtons();
markSection();
