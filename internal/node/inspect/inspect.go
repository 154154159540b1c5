// SPDX-License-Identifier: Apache-2.0

// Package inspect is the agent's attachments as operators see them: a list, and whether they are as they were made.
package inspect

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// checkAllTime bounds a CHECK of all attachments; those that are left are counted.
const checkAllTime = 30 * time.Second

// Records are the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Attachments can be checked.
type Attachments interface {
	CheckAll(ctx context.Context) (model.CheckReport, error)
}

// Inspector answers.
type Inspector struct {
	Records     Records
	Attachments Attachments
	// Directory is the directory of host-local's that all addresses of an attachment are from, empty where there is none.
	Directory func(attach.Record) string
	Log       *slog.Logger
}

// CheckAll compares all attachments with the kernel, for weft doctor.
func (i *Inspector) CheckAll(ctx context.Context) model.CheckReport {
	ctx, cancel := context.WithTimeout(ctx, checkAllTime)
	defer cancel()
	report, err := i.Attachments.CheckAll(ctx)
	if err != nil {
		i.Log.Warn("some records cannot be checked", "err", err)
	}
	return report
}

// attachment is what /attachments says of one.
type attachment struct {
	model.AttachmentKey
	Stage  attach.Stage  `json:"stage"`
	Since  time.Time     `json:"since"`
	Pod    string        `json:"pod,omitempty"`
	Netns  string        `json:"netns,omitempty"`
	Result *model.Result `json:"result,omitempty"`
	// Filed is the directory of host-local's that all its addresses are from.
	Filed string `json:"filed,omitempty"`
}

// List is the ledger for operators.
func (i *Inspector) List() (any, error) {
	records, err := i.Records.List()
	all := make([]attachment, 0, len(records))
	for _, rec := range records {
		namespace, _ := rec.Request.Arg("K8S_POD_NAMESPACE")
		name, _ := rec.Request.Arg("K8S_POD_NAME")
		one := attachment{
			AttachmentKey: rec.Key(), Stage: rec.Stage, Since: rec.Since(), Netns: rec.Request.Netns, Result: rec.Result,
			Filed: i.Directory(rec),
		}
		if name != "" {
			one.Pod = namespace + "/" + name
		}
		all = append(all, one)
	}
	return all, err
}
