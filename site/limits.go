package site

// Limits bound what callers do at the same time, so that nobody holds up the others.
type Limits struct {
	Calls          int `yaml:"calls"`            // 1..65536 calls carried out at once; default 256
	CallsPerCaller int `yaml:"calls_per_caller"` // 1..65536 of these for one caller; default 64
	WaitsPerCaller int `yaml:"waits_per_caller"` // 1..65536 calls of one caller that wait for a run; default 512
}

// limit is a field of Limits: where it is, its default, and the values it may have.
type limit struct {
	name           string
	value          *int
	def, low, high int
}

func (l *Limits) fields() []limit {
	const most = 1 << 16
	return []limit{
		{"calls", &l.Calls, 256, 1, most},
		{"calls_per_caller", &l.CallsPerCaller, 64, 1, most},
		{"waits_per_caller", &l.WaitsPerCaller, 512, 1, most},
	}
}

func (c *checker) limits(l Limits) {
	for _, f := range l.fields() {
		c.bounds("limits."+f.name, int64(*f.value), int64(f.low), int64(f.high))
	}
}
