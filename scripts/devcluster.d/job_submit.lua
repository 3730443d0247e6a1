-- What a site's own job_submit plugin may do to jobs, as tests ask for it: the nearest file .job_submit in a folder above a job's working folder
-- says it. Without one nothing is done.
--
--   rename NAME    the job gets this name
--   refuse WORDS   the job is not accepted, and its user is told these words
function slurm_job_submit(job, partitions, uid)
  local dir = job.work_dir or ""
  while dir ~= "" do
    local file = io.open(dir .. "/.job_submit")
    if file then
      local verb, text = string.match(file:read("*l") or "", "^(%w+) (.*)$")
      file:close()
      if verb == "rename" then
        job.name = text
      elseif verb == "refuse" then
        slurm.log_user("%s", text)
        return slurm.ERROR
      end
      break
    end
    dir = string.match(dir, "^(.*)/[^/]*$") or ""
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
