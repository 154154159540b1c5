// SPDX-License-Identifier: Apache-2.0

// Package readygate waits for the readiness gates of Calico's plugin: URLs that must respond before a pod is attached.
package readygate

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// pollPeriod is how often a gate is polled, answerTimeout limits one response, and timeout limits the whole wait.
const pollPeriod, answerTimeout, timeout = 5 * time.Second, 5 * time.Second, 30 * time.Second

// Wait waits until each URL has responded with status 200, as Calico's plugin does. The parameter after is the clock's.
func Wait(ctx context.Context, urls []string, after func(time.Duration) <-chan time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := after(timeout)
	go func() {
		select {
		case <-limit:
			cancel(errTimeout)
		case <-ctx.Done():
		}
	}()
	for _, url := range urls {
		for {
			err := check(ctx, url)
			if err == nil {
				break
			}
			select {
			case <-after(pollPeriod):
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return notReady(url, fmt.Errorf("%w: %w", context.Cause(ctx), err))
			}
		}
	}
	return nil
}

var errTimeout = fmt.Errorf("not ready within %s", timeout)

func notReady(url string, err error) error {
	return model.Errorf(model.CodeTryAgain, "check the server of the URL, or remove the URL from readiness_gates",
		"plugin calico: readiness gate %s: %w", url, err)
}

func check(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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
