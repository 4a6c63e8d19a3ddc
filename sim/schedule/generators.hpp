#pragma once

#include "sim/schedule/catalogue.hpp"

namespace flopcast {

// One file each, named like the schedule; the rule, its source and its figures stand at the top of the file.
ScheduleInfo naive_schedule();
ScheduleInfo gpipe_schedule();
ScheduleInfo one_forward_one_backward_schedule();  // 1f1b.cpp
ScheduleInfo eager_1f1b_schedule();
ScheduleInfo interleaved_schedule();
ScheduleInfo bfs_schedule();
ScheduleInfo gis_schedule();
ScheduleInfo hanayo_schedule();
ScheduleInfo dapple_schedule();
ScheduleInfo terapipe_schedule();
ScheduleInfo chimera_schedule();
ScheduleInfo dualpipe_schedule();
ScheduleInfo dualpipev_schedule();
ScheduleInfo zb_h1_schedule();
ScheduleInfo zb_h2_schedule();
ScheduleInfo interleaved_zb_schedule();
ScheduleInfo zb_auto_schedule();
ScheduleInfo one_f_one_b_v_schedule();  // 1f1b_v.cpp
ScheduleInfo zbv_schedule();
ScheduleInfo v_half_schedule();
ScheduleInfo v_min_schedule();
ScheduleInfo v_auto_schedule();
ScheduleInfo pipedream_schedule();
ScheduleInfo pipedream_2bw_schedule();

}  // namespace flopcast
