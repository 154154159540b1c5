// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// minMinor is the lowest minor version of Kubernetes 1 whose tokens always contain the node of their pod
// (authentication.kubernetes.io/node-name). The admission policies depend on it.
const minMinor = 32

// versionRetry is the delay before the version is requested again.
const versionRetry = 10 * time.Second

// AwaitVersion returns an error if the server is too old for tokens with a node's name: then a node's token could write
// other nodes' objects. It retries while the server does not answer.
func (s *Store) AwaitVersion(ctx context.Context, after func(time.Duration) <-chan time.Time) error {
	for {
		err := s.CheckVersion(ctx)
		var f *model.Error
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-after(versionRetry):
		}
	}
}

// CheckVersion requests the server's version. The error is a model.Error if the version is too old or invalid; any
// other error means that the server did not answer.
func (s *Store) CheckVersion(ctx context.Context) error {
	raw, err := do(ctx, requestTimeout, s.clients.work.Get().AbsPath("/version"))
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	var is struct{ Major, Minor, GitVersion string }
	if err := json.Unmarshal(raw, &is); err != nil {
		return model.Errorf(model.CodeInvalidConf, "is that an API server?", "version of the API server: %w", err)
	}
	major, err := strconv.Atoi(is.Major)
	minor, err2 := strconv.Atoi(strings.TrimRight(is.Minor, "+"))
	if err != nil || err2 != nil || major < 1 || major == 1 && minor < minMinor {
		return model.Errorf(model.CodeInvalidConf, fmt.Sprintf("upgrade Kubernetes to 1.%d or newer", minMinor),
			"the API server is of version %q (%s.%s): before 1.%d a token does not name its node, and nothing keeps a node from writing what is another node's",
			is.GitVersion, is.Major, is.Minor, minMinor)
	}
	return nil
}
