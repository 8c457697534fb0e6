package top

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ErrNotFairlead is returned for metrics of something else.
var ErrNotFairlead = errors.New("these metrics are not a Fairlead server's")

// Snapshot is what a server said at one moment. All but the gauges are counted since its process began. The series of a metric
// are added up under its name. Those with a service, outcome or status are added up under "name value", too; of statuses those of
// 500 and more, under "name 5xx".
type Snapshot struct {
	sums     map[string]float64
	spread   map[string]Histogram
	services map[string]bool
	targets  map[string]float64 // of sharedChanges
}

// sharedChanges is the metric of targets that several servers work on.
const sharedChanges = "fairlead_shared_target_changes_per_second"

// Parse reads metrics in Prometheus' text format. It returns [ErrNotFairlead] where nothing in them is Fairlead's, and an
// error for what is not in that format.
func Parse(text io.Reader) (*Snapshot, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(families)), func(name string) bool { return strings.HasPrefix(name, "fairlead_") }) {
		return nil, ErrNotFairlead
	}
	return Read(maps.Values(families)), nil
}

// Read makes a snapshot of metrics.
func Read(families iter.Seq[*dto.MetricFamily]) *Snapshot {
	s := &Snapshot{sums: map[string]float64{}, spread: map[string]Histogram{}, services: map[string]bool{}, targets: map[string]float64{}}
	for f := range families {
		name := f.GetName()
		for _, m := range f.GetMetric() {
			s.add(name, m)
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "service":
					if strings.HasPrefix(name, "fairlead_lane_") {
						s.services[l.GetValue()] = true
					}
					s.add(name+" "+l.GetValue(), m)
				case "target":
					if name == sharedChanges {
						s.targets[l.GetValue()] = m.GetGauge().GetValue() + m.GetUntyped().GetValue()
					}
				case "outcome":
					s.add(name+" "+l.GetValue(), m)
				case "status":
					if strings.HasPrefix(l.GetValue(), "5") {
						s.add(name+" 5xx", m)
					}
				}
			}
		}
	}
	return s
}

// Sum is a counter or gauge.
func (s *Snapshot) Sum(name string) float64 { return s.sums[name] }

// Spread is a histogram.
func (s *Snapshot) Spread(name string) Histogram { return s.spread[name] }

// Services are those that commit in groups, in order.
func (s *Snapshot) Services() []string { return slices.Sorted(maps.Keys(s.services)) }

// Shared are the targets that the server works on in turns with others, those first that others change most often.
func (s *Snapshot) Shared() []Shared {
	list := make([]Shared, 0, len(s.targets))
	for target, rate := range s.targets {
		list = append(list, Shared{Target: target, Changes: rate})
	}
	slices.SortFunc(list, func(a, b Shared) int {
		return cmp.Or(cmp.Compare(b.Changes, a.Changes), cmp.Compare(a.Target, b.Target))
	})
	return list
}

// Shared is an auction or a campaign that several servers work on.
type Shared struct {
	Target  string  `json:"target"`
	Changes float64 `json:"changes_per_second"` // by other servers, as this one finds them
}

func (s *Snapshot) add(name string, m *dto.Metric) {
	if m.GetHistogram() == nil {
		s.sums[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() // Of which it has one.
		return
	}
	h := s.spread[name]
	h.add(m.GetHistogram())
	s.spread[name] = h
}
