package protocol

const (
	attempts = 2
	sends    = 3
	jobs     = 3
)

// phase is the run's phase in the ledger.
type phase uint8

const (
	unknown phase = iota // the ledger has no row
	waits                // for outputs of other runs: it is not staged
	staging
	submitting
	deferred
	unconfirmed
	inJob
	ahead // the workspace holds an attempt that this ledger does not know
	done
)

// ending is the end of an attempt.
type ending uint8

const (
	open     ending = iota
	never           // it was not executed, and cannot be
	executed        // there is an exit file
	maybe           // lost, or given up
)

// rowState is the gateway's progress with the row of a batch that the run is for.
type rowState uint8

const (
	noRow     rowState = iota // the run is asked for by itself
	toSubmit                  // its run is not made yet
	withdrawn                 // the batch was cancelled before
	submitted
)

// holder is the holder of a claim: none, the gateway, or a start of a job.
type holder uint8

const (
	nobody holder = iota
	void
	firstStart // + 2*job + restart
)

func start(job int, restart uint8) holder { return firstStart + holder(2*job) + holder(restart) }

// ledger holds what survives the gateway's death.
type ledger struct {
	Phase   phase
	Attempt uint8 // 1…
	Token   [attempts]uint8
	Sends   uint8 // of the whole run
	Cancel  bool
	Row     rowState
	Content bool // while the run waits: a run with what it waits for was asked for, and is there
	Ended   [attempts]ending
}

// pc is the gateway's position in its program.
type pc uint8

const (
	idle pc = iota
	toSend
	waiting // for the answer of send K
	toLink  // it takes the claim
	toSync
	toRead
)

// requestState is the progress of a send.
type requestState uint8

const (
	unsent requestState = iota
	onItsWay
	accepted
	notNow  // refused, and may be sent again
	refused // for good
	vanished
)

// request is a send on its way.
type request struct {
	State   requestState
	Attempt uint8
	Token   uint8
}

// jobPC is a job's position in its script.
type jobPC uint8

const (
	absent jobPC = iota
	pending
	linking
	reading
	executing
	over
)

type job struct {
	PC      jobPC
	Attempt uint8
	Token   uint8
	Restart uint8
	Known   bool // to the controller
	Renamed bool // it has another name in Slurm than it was sent with
	Said    bool // the answer of ln
}

type claim struct {
	By      holder
	Durable bool
}

// state is the whole world.
type state struct {
	Led, Bak ledger
	Saved    bool // there is a backup
	Restored bool
	PC       pc
	RowRead  bool // the gateway has read the row, or that of a run whose inputs are there, and is about to make its run
	Seen     bool // and the run of the content was there then
	Stopped  bool // a cancel was acknowledged
	Said     bool // the answer of link to the gateway
	K        uint8
	Req      [sends]request
	Jobs     [jobs]job
	Folder   [attempts]uint8 // token in it; 0: absent
	Claim    [attempts]claim
	Exit     [attempts]bool
	Runs     [attempts]uint8 // how often the program was started
	Left     Bound           // of the faults
}

// over ends the job. Only its attempt and token matter afterwards.
func (j *job) over() { *j = job{PC: over, Attempt: j.Attempt, Token: j.Token} }

// forget drops what can make no difference any more, so that states that differ in it are one.
func (s *state) forget() {
	if s.Left.Restores == 0 || s.Left.All == 0 {
		s.Bak, s.Saved = ledger{}, false
	}
	if s.Restored { // an older ledger does not know
		s.Stopped = false
	}
}

// ended reports whether nothing more happens to the run.
func (s *state) ended() bool {
	return s.Led.Phase == done || s.Led.Phase == unknown && s.Led.Row == withdrawn
}

func (s *state) at() int { return int(s.Led.Attempt) - 1 }

// end ends the attempt; what the infrastructure ended gets a new one.
func (s *state) end(how ending) {
	s.PC = idle
	s.Led.Ended[s.at()] = how
	if how != executed && !s.Led.Cancel && s.Led.Attempt < attempts {
		s.Led.Attempt++
		s.Led.Token[s.at()] = s.token()
		s.Led.Phase = staging
		return
	}
	s.Led.Phase = done
}

// deferSend ends a send that was refused for now. It can have no effect any more, so its place is free, unless there
// may be an older ledger that reads its receipt.
func (s *state) deferSend(k uint8) {
	s.Led.Phase, s.PC = deferred, idle
	if !s.Restored && (s.Left.Restores == 0 || s.Left.All == 0) {
		s.Req[k] = request{}
		s.Led.Sends = k
	}
}

// created makes the run, which is staged from now on.
func (s *state) created() {
	s.Led.Phase, s.Led.Attempt, s.Led.Token[0], s.Led.Content = staging, 1, s.token(), false
}

// mine reports whether send k was one of the submission that the ledger has.
func (s *state) mine(k uint8) bool {
	return s.Req[k].State != unsent && s.Req[k].Attempt == s.Led.Attempt && s.Req[k].Token == s.Led.Token[s.at()]
}

// token returns the token of an attempt that is made now. Every row has a separate one; after a restore they differ
// from those before.
func (s *state) token() uint8 {
	if s.Restored {
		return 2
	}
	return 1
}
