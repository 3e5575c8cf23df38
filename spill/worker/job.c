#include "spill/worker/job.h"

void sw_job_init_run(struct sw_job *job, const struct sw_request *request, unsigned index) {
    job->kind = SW_JOB_RUN;
    sw_list_init(&job->ready);
    sw_list_init(&job->writes);
    sw_list_init(&job->waiting);
    sw_run_init(&job->run, request, index, &job->signals);
}
