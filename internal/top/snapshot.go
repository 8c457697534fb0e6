package top

import (
	"errors"
	"fmt"
	"io"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ErrNotFairlead is returned for metrics of something else.
var ErrNotFairlead = errors.New("these metrics are not a Fairlead server's")

// Snapshot is what a server said at one moment. All but the gauges are counted since its process began.
type Snapshot struct {
	// sums and spread have counters and gauges, and histograms, by name; the series of a metric are added up. What is told by
	// service, outcome or status is there by "name value", too; of statuses those of 500 and more, by "name 5xx".
	sums   map[string]float64
	spread map[string]Histogram
	// services are those that commit in groups.
	services map[string]bool
}

// Parse reads metrics in Prometheus' text format. It returns [ErrNotFairlead] where nothing in them is Fairlead's, and an
// error for what is not in that format.
func Parse(text io.Reader) (*Snapshot, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	s := &Snapshot{sums: map[string]float64{}, spread: map[string]Histogram{}, services: map[string]bool{}}
	ours := false
	for name, f := range families {
		ours = ours || strings.HasPrefix(name, "fairlead_")
		for _, m := range f.GetMetric() {
			s.add(name, m)
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "service":
					if strings.HasPrefix(name, "fairlead_lane_") {
						s.services[l.GetValue()] = true
					}
					s.add(name+" "+l.GetValue(), m)
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
	if !ours {
		return nil, ErrNotFairlead
	}
	return s, nil
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
