package target

// Rate is a kind of arithmetic that a chip has a peak rate for.
type Rate string

// The kinds.
const (
	RateVector Rate = "vector" // f32 outside the matrix units
	RateBF16   Rate = "bf16"   // matrix units, dense
	RateF8     Rate = "f8"     // matrix units, dense; narrower weights are multiplied at this rate
)

// Chip is a card as its maker describes it: what no kernel can beat.
type Chip struct {
	Target string
	Card   string
	Memory float64          // bytes per second
	Flops  map[Rate]float64 // per second
	Source string
}

// Chips lists the cards with known rates. A target that is not here has no floor
// time. A chip that several cards have is listed as the fastest of those that
// models of this size run on.
var Chips = []Chip{
	{"gfx942", "MI300X", 5.3e12, map[Rate]float64{RateVector: 163.4e12, RateBF16: 1307.4e12, RateF8: 2614.9e12},
		"AMD Instinct MI300X data sheet, peak theoretical performance without sparsity"},
	{"gfx950", "MI355X", 8.0e12, map[Rate]float64{RateVector: 157.3e12, RateBF16: 2516.6e12, RateF8: 5033.2e12},
		"AMD Instinct MI355X data sheet, peak theoretical performance without sparsity"},
}

// ChipOf returns the rates of a target's chip, or nil.
func ChipOf(chip string) *Chip {
	for i := range Chips {
		if Chips[i].Target == chip {
			return &Chips[i]
		}
	}
	return nil
}

// Floor is the least time, in microseconds, in which the chip can move bytes and
// compute flops.
func (c *Chip) Floor(bytes, flops int64, r Rate) float64 {
	t := float64(bytes) / c.Memory
	if flops > 0 {
		t = max(t, float64(flops)/c.Flops[r])
	}
	return t * 1e6
}
