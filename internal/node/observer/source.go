// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"context"

	"github.com/weft-net/weft/internal/kernel/conntrack"
	"github.com/weft-net/weft/internal/node/policy"
)

// source are the sockets by which the node is observed.
type source struct {
	cfg        Config
	events     *conntrack.Listener
	stopDenied func()
	// notes are what is not observed.
	notes []string
}

// listen opens them. event and denied are called from several goroutines, until close.
func listen(cfg Config, event func(conntrack.Event), denied func(policy.DeniedPacket)) (*source, error) {
	s := &source{cfg: cfg, stopDenied: func() {}}
	var err error
	if s.events, err = conntrack.Listen(context.Background(), cfg.NS, event); err != nil {
		return nil, err
	}
	switch {
	case cfg.Policies == nil:
		s.notes = append(s.notes, "policies are not observed: this agent enforces none")
	case !cfg.Policies.LogsDenied():
		s.notes = append(s.notes, "denied packets are not observed: set policy.log to denied")
	default:
		s.stopDenied = cfg.Policies.ObserveDenied(denied)
	}
	return s, nil
}

func (s *source) close() {
	s.stopDenied()
	s.events.Close()
}

// lost returns how many events were lost since the source was opened. After an error they are not known.
func (s *source) lost() (begun, ended uint64) {
	begun, err := s.events.Lost(conntrack.New)
	if err == nil {
		ended, err = s.events.Lost(conntrack.End)
	}
	if err != nil {
		s.cfg.Log.Warn("lost flows cannot be counted", "err", err)
	}
	return begun, ended
}
