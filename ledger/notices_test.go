package ledger

import (
	"fmt"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/notify"
)

// A notice is due in the transaction that ends its run, at once if that was before, and settled once. proves MANY-05
func TestNotices(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	v := insert(t, l, 1)
	ask := func(id, url, by string) (notify.Notice, error) {
		return l.AddNotice(ctx, notify.Notice{ID: "ntc_" + id, RunID: v.Run.ID, URL: url, Origin: "https://a", By: by, ByID: "prn_" + by}, 2)
	}
	one, err := ask("1", "https://a/1", "ana")
	must(t, err)
	again, err := ask("2", "https://a/1", "ana")
	if must(t, err); again.ID != one.ID || one.DueAt != nil || one.NextAt != nil {
		t.Errorf("%+v %+v", one, again)
	}
	_, err = ask("3", "https://a/3", "ana")
	must(t, err)
	if _, err := ask("4", "https://a/4", "ana"); fault.CodeOf(err) != "too_many_notices" {
		t.Error(err)
	}
	if _, err := l.AddNotice(ctx, notify.Notice{ID: "ntc_x", RunID: "run_none", URL: "https://a", Origin: "https://a"}, 2); !fault.Is(err,
		fault.NotFound) {
		t.Error(err)
	}
	far := l.now().Add(24 * time.Hour)
	due := func(at time.Time) (out []string) {
		list, err := l.DueNotices(ctx, at, 2)
		must(t, err)
		for _, n := range list {
			out = append(out, n.ID)
		}
		return out
	}
	if got := due(far); len(got) != 0 {
		t.Error(got)
	}
	v = finish(t, l, v)
	_, err = ask("5", "https://a/5", "bob")
	must(t, err)
	if got := due(far); fmt.Sprint(got) != "[ntc_1 ntc_3]" { // at most two of an origin
		t.Error(got)
	}
	said, err := l.NoticeEvent(ctx, one)
	e, _ := said.(notify.EventData)
	if must(t, err); e.RunID != v.Run.ID || e.State != string(v.Run.State) || e.FinishedAt.IsZero() || e.GatewayID != l.ID() {
		t.Errorf("%+v", e)
	}
	must(t, l.NoticeTried(ctx, "ntc_1", "answered with status 204", true, nil))
	must(t, l.NoticeTried(ctx, "ntc_1", "late", false, &far)) // it is settled
	must(t, l.HoldNotices(ctx, "https://a", l.now().Add(time.Minute), far))
	if got := due(l.now().Add(time.Hour)); len(got) != 0 {
		t.Error(got)
	}
	if n, err := l.NoticesDelivered(ctx, "https://a", l.now().Add(-time.Hour)); n != 1 || err != nil {
		t.Error(n, err)
	}
	list, err := l.Notices(ctx, notify.Notice{RunID: v.Run.ID})
	if must(t, err); len(list) != 3 || !list[0].Delivered || list[0].SettledAt == nil || list[0].Result != "answered with status 204" ||
		list[1].SettledAt != nil {
		t.Errorf("%+v", list)
	}
	_, signature, err := l.SignNotice(ctx, []byte("x"))
	if must(t, err); len(signature) != 64 {
		t.Error(len(signature))
	}
}
