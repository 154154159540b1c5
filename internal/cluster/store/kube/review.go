// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
)

// User is the user of a token (authentication.k8s.io/v1, UserInfo).
type User struct {
	Name   string              `json:"username"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// Is reports whether both are the same user with the same groups.
func (u User) Is(o User) bool {
	return u.Name == o.Name && u.UID == o.UID && slices.Equal(u.Groups, o.Groups) &&
		maps.EqualFunc(u.Extra, o.Extra, slices.Equal)
}

// ErrNoUser reports a token without a user: it was not issued by the cluster, has expired, or was revoked.
var ErrNoUser = errors.New("the API server does not accept it")

// ReviewToken returns the user of a token (TokenReview). The error is ErrNoUser if it has none.
func (s *Store) ReviewToken(ctx context.Context, token string) (User, error) {
	type spec struct {
		Token string `json:"token"`
	}
	var answer struct {
		Status struct {
			Authenticated bool
			User          User
		}
	}
	kind := store.Kind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenReview", Resource: "tokenreviews"}
	if err := s.review(ctx, kind, spec{token}, &answer); err != nil {
		return User{}, err
	}
	if !answer.Status.Authenticated {
		return User{}, ErrNoUser
	}
	return answer.Status.User, nil
}

// MayGetFlows reports whether a user may get flows.weft.dev in a namespace, "" is all of them (SubjectAccessReview). No
// object of this resource exists; it is only a name for the right.
func (s *Store) MayGetFlows(ctx context.Context, u User, namespace string) (bool, error) {
	type attributes struct {
		Namespace string `json:"namespace,omitempty"`
		Verb      string `json:"verb"`
		Group     string `json:"group"`
		Resource  string `json:"resource"`
	}
	type spec struct {
		User       string              `json:"user"`
		UID        string              `json:"uid,omitempty"`
		Groups     []string            `json:"groups,omitempty"`
		Extra      map[string][]string `json:"extra,omitempty"`
		Attributes attributes          `json:"resourceAttributes"`
	}
	var answer struct {
		Status struct{ Allowed, Denied bool }
	}
	kind := store.Kind{
		Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview", Resource: "subjectaccessreviews",
	}
	err := s.review(ctx, kind, spec{u.Name, u.UID, u.Groups, u.Extra, attributes{namespace, "get", store.Group, "flows"}}, &answer)
	return err == nil && answer.Status.Allowed && !answer.Status.Denied, err
}

// review creates an object that the server only answers.
func (s *Store) review(ctx context.Context, kind store.Kind, spec, answer any) error {
	b, err := json.Marshal(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       any    `json:"spec"`
	}{kind.Group + "/" + kind.Version, kind.Kind, spec})
	if err != nil {
		return err
	}
	raw, err := do(ctx, requestTimeout, asJSON(s.clients.review.Post().AbsPath(path(kind, "", "")), b))
	if err == nil {
		err = json.Unmarshal(raw, answer)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	return nil
}
