/* The page of the benchmark in headless Chromium, in light and in dark, wide and narrow: it says
 * nothing on the console, every plot has marks and holds them, no two texts of a plot lie on each
 * other, and all can be read. Skipped where there is no Chromium. */
#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "support/fixtures.h"
#include "support/suite.h"
#include "unit/bench_samples.h"

/* Put at the end of the page: what it looks like to the browser, as text. */
static const char *const k_probe =
    "<script>addEventListener('load',()=>{const said=[];"
    "const light=c=>{const v=c.match(/[0-9.]+/g).map(Number).slice(0,3).map(x=>{x/=255;"
    "return x<=.03928?x/12.92:((x+.055)/1.055)**2.4});return .2126*v[0]+.7152*v[1]+.0722*v[2]};"
    "const paper=e=>{for(;e;e=e.parentElement){const b=getComputedStyle(e).backgroundColor;"
    "if(!/, 0\\)|transparent/.test(b))return b}return 'rgb(255,255,255)'};"
    "const contrast=(e,c)=>{const a=light(c),b=light(paper(e));"
    "return (Math.max(a,b)+.05)/(Math.min(a,b)+.05)};"
    "document.querySelectorAll('svg').forEach((svg,i)=>{const box=svg.getBoundingClientRect();"
    "let marks=0;svg.querySelectorAll('.mark').forEach(m=>{const b=m.getBoundingClientRect();"
    "marks+=b.width+b.height>1;if(b.left<box.left-1||b.right>box.right+1||b.top<box.top-1||"
    "b.bottom>box.bottom+1)said.push('BAD mark outside plot '+i)});"
    "const texts=[...svg.querySelectorAll('text')];const boxes=texts.map(t=>"
    "t.getBoundingClientRect());boxes.forEach((a,m)=>{if(a.right>box.right+1||a.left<box.left-1)"
    "said.push('BAD text outside plot '+i+': '+texts[m].textContent);boxes.forEach((b,n)=>{"
    "if(m<n&&a.left+1<b.right&&b.left+1<a.right&&a.top+3<b.bottom&&b.top+3<a.bottom)"
    "said.push('BAD texts overlap: '+texts[m].textContent+' / '+texts[n].textContent)});"
    "if(contrast(texts[m],getComputedStyle(texts[m]).fill)<4.5)"
    "said.push('BAD contrast: '+texts[m].textContent)});"
    "said.push('plot '+i+' has '+marks+' marks')});"
    "document.querySelectorAll('p,td,th,li,h1,h2').forEach(e=>{"
    "if(contrast(e,getComputedStyle(e).color)<4.5)said.push('BAD contrast: '+e.textContent)});"
    "if(document.documentElement.scrollWidth>innerWidth)said.push('BAD wider than the window');"
    "said.push('scheme '+(matchMedia('(prefers-color-scheme: dark)').matches?'dark':'light'));"
    "const pre=document.createElement('pre');pre.textContent='PROBE\\n'+said.join('\\n')+'\\nEND';"
    "document.body.append(pre)})</script></body></html>";

static const char *chromium(void) {
    static const char *const paths[] = {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                                        "/usr/bin/google-chrome"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    return NULL;
}

/* The page with the probe in place of its end, at dir/page.html. */
static void write_page(const char *dir, const char *extra) {
    struct ft_buf page;
    ft_buf_init(&page, 0);
    bench_page(&g_bench, &page);
    ck_assert(!page.failed);
    static const char end[] = "</body></html>\n";
    ck_assert(page.len > sizeof end);
    page.len -= sizeof end - 1;
    ft_buf_add_c(&page, extra);
    ft_buf_add_c(&page, k_probe);
    ft_fixture_write(dir, "page.html", page.ptr, page.len);
    ft_buf_fini(&page);
}

/* What the browser says of the page; its console goes to the end of it. */
static void look(const char *dir, int width, bool dark, struct ft_buf *said) {
    char command[1400], path[300];
    struct ft_err err = {0};
    snprintf(command, sizeof command,
             "timeout 90 %s --headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
             "--disable-background-networking --disable-component-update --disable-sync "
             "--user-data-dir=%s/profile --window-size=%d,1600 "
             "--blink-settings=preferredColorScheme=%d --enable-logging=stderr --dump-dom "
             "file://%s/page.html >%s/dom 2>%s/log; grep -a CONSOLE %s/log >>%s/dom; "
             "rm -rf %s/profile",
             chromium(), dir, width, dark ? 0 : 1, dir, dir, dir, dir, dir, dir);
    ck_assert_int_ne(system(command), -1);
    snprintf(path, sizeof path, "%s/dom", dir);
    ck_assert_int_eq(ft_file_read(path, 16 << 20, said, &err), FT_OK);
    ft_buf_add(said, "", 1);
    /* Behind the probe's own text in the page. */
    const char *probe = strstr(said->ptr, "<pre>PROBE");
    ck_assert_msg(probe != NULL, "the page did not load: %.400s", said->ptr);
    memmove(said->ptr, probe, strlen(probe) + 1);
}

static void fill(void) {
    bench_samples_setup();
    struct bench_row *chain = add("chain", -1), *four = add("K = 4", 4);
    chain->drafter = ft_str_c("chain");
    for (int row = 2; row < 4; row++) {
        struct bench_row *to = &g_bench.rows[row];
        to->steps = to->drafts = 500;
        to->tokens = 1400;
        to->drafted = row == 2 ? 1300 : 2000;
        to->accepted = 900;
        for (int at = 0; at < (row == 2 ? 3 : 4); at++) {
            to->drafted_at[at] = 500 - 40 * (uint64_t)at * (row == 2);
            to->accepted_at[at] = 380 - 90 * (uint64_t)at;
        }
        add_round(to, 4.2, 0.6, 3.2, 3);
        for (int i = 0; i < 4; i++)
            add_number(&to->speeds, 700 + 40 * i);
    }
    four->together = 1;
}

START_TEST(page_is_whole_in_a_browser) {
    static const int widths[] = {1000, 1000, 420};
    const char *dir = ft_fixture_temp_dir();
    struct ft_buf said;
    ft_buf_init(&said, 0);
    fill();
    write_page(dir, "");
    look(dir, widths[_i], _i == 1, &said);
    ck_assert_msg(strstr(said.ptr, "BAD") == NULL, "%.600s", said.ptr);
    ck_assert_msg(strstr(said.ptr, "CONSOLE") == NULL, "%.600s", strstr(said.ptr, "CONSOLE"));
    ck_assert_ptr_nonnull(strstr(said.ptr, _i == 1 ? "scheme dark" : "scheme light"));
    for (int i = 0; i < 3; i++) {
        char none[40], has[40];
        snprintf(none, sizeof none, "plot %d has 0 marks", i);
        snprintf(has, sizeof has, "plot %d has ", i);
        ck_assert_msg(strstr(said.ptr, has) != NULL, "%.600s", said.ptr);
        ck_assert_msg(strstr(said.ptr, none) == NULL, "%s", none);
    }
    ck_assert_ptr_null(strstr(said.ptr, "plot 3 has"));
    ft_buf_fini(&said);
    teardown();
    ft_fixture_remove_dir(dir);
}
END_TEST

/* What the check looks for it must find: an error on the console, and a text that nobody can read.
 */
START_TEST(check_sees_what_is_wrong) {
    const char *dir = ft_fixture_temp_dir();
    struct ft_buf said;
    ft_buf_init(&said, 0);
    fill();
    write_page(dir,
               "<p style=\"color:#eee\">pale</p><svg width=\"300\" height=\"50\"><text x=\"5\" "
               "y=\"20\">one</text><text x=\"8\" y=\"22\">two</text></svg>"
               "<script>console.error('seen')</script>");
    look(dir, 1000, false, &said);
    ck_assert_ptr_nonnull(strstr(said.ptr, "CONSOLE"));
    ck_assert_ptr_nonnull(strstr(said.ptr, "BAD contrast: pale"));
    ck_assert_ptr_nonnull(strstr(said.ptr, "BAD texts overlap: one / two"));
    ck_assert_ptr_nonnull(strstr(said.ptr, "plot 3 has 0 marks"));
    ft_buf_fini(&said);
    teardown();
    ft_fixture_remove_dir(dir);
}
END_TEST

int main(void) {
    if (chromium() == NULL) {
        printf("skipped: no Chromium on this machine\n");
        return 77;
    }
    Suite *suite = suite_create("ctl_bench_page");
    TCase *tc = tcase_create("ctl_bench_page");
    tcase_set_timeout(tc, 280);
    tcase_add_loop_test(tc, page_is_whole_in_a_browser, 0, 3);
    tcase_add_test(tc, check_sees_what_is_wrong);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
