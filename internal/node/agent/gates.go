// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// How often a gate is asked, how long one answer may take, and how long all of it.
const gateEvery, gateAnswer, gateLimit = 5 * time.Second, 5 * time.Second, 30 * time.Second

// gates waits until each URL has answered that all is well, as Calico's plugin does.
func (a *agent) gates(ctx context.Context, urls []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := a.cfg.After(gateLimit)
	go func() {
		select {
		case <-limit:
			cancel(errGateLimit)
		case <-ctx.Done():
		}
	}()
	for _, url := range urls {
		for {
			err := passes(ctx, url)
			if err == nil {
				break
			}
			select {
			case <-a.cfg.After(gateEvery):
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return shut(url, fmt.Errorf("%w: %w", context.Cause(ctx), err))
			}
		}
	}
	return nil
}

var errGateLimit = fmt.Errorf("not ready within %s", gateLimit)

func shut(url string, err error) error {
	return model.Faultf(model.CodeTryAgain, "look at what serves it, or leave it out of readiness_gates", "plugin calico: readiness gate %s: %w", url, err)
}

func passes(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, gateAnswer)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", answer.Status)
	}
	return nil
}
