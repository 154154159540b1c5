// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"os"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// How long an ADD waits for the cluster's network, before it fails with "try again".
const (
	readyLimit = 10 * time.Second
	readyStep  = 100 * time.Millisecond
)

// Ready returns an error unless the cluster's network has written its file.
func (s Settings) Ready() error {
	if s.ReadinessFile == "" {
		return nil
	}
	if _, err := os.Stat(s.seen(s.ReadinessFile)); err != nil {
		return model.Errorf(model.CodeTryAgain, "the file comes when the cluster's network is ready",
			"network %s: readinessindicatorfile %q: %w", s.Name, s.ReadinessFile, plain(err))
	}
	return nil
}

// waitReady waits for the file, for a limited time.
func (s Settings) waitReady(ctx context.Context) error {
	err := s.Ready()
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	step := time.NewTicker(readyStep)
	defer step.Stop()
	for err != nil {
		select {
		case <-ctx.Done():
			return err
		case <-step.C:
			err = s.Ready()
		}
	}
	return nil
}
