-- The type beside the task, so that a list of the dead of one type finds them without a look at each dead task.
-- breaking: no

drop index dead_letters_task;
create index dead_letters_task on dead_letters (task_id, id) include (type);
