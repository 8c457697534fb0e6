package main

import (
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// startMultidraws makes the service of multi-draws.
func (n *node) startMultidraws(registry *prometheus.Registry) {
	n.multidraw = multidraw.NewService(postgres.NewMultidraws(n.db), multidraw.Options{
		Observer: telemetry.NewMultidraws(registry), Logger: n.logger,
		// A checkpoint's event is its row, so there is nothing to tell but its number.
		Committed: func(id uuid.UUID, checkpoint int64) { n.hub.Committed(multidraw.Topic(id), checkpoint, nil) },
	})
	n.onClose(n.multidraw.Close)
}
