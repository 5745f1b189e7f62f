"""What stands around a box: words that leave its answer alone, and what makes another of it."""

import pytest
from reckoning import boxed, outcome, problem
from text_tables import pairs, texts

from heavydistill.verifiers.mathematics.verifier import Math

EQUAL, RETRACTED = ("correct", "equal"), ("undecided", "retracted")

# What real responses write around the box of an answer that counts.
ACCEPTED = texts(r"""
    The answer is $□$.  ¦  The answer is □.  ¦  The answer is: $□$
    The final answer is: $□$. I hope it is correct.  ¦  Thus, $x = □$ cm.
    Therefore \(□\) apples.  ¦  **Final answer:** $$□$$  ¦  **Final Answer**⏎⏎\[ □ \]
    \[ □ \] units  ¦  So there are □ ways to do that.  ¦  So there are $□$ ordered pairs.
    Hence the remainder is \(□\).  ¦  $$x = 2 + 3 = □$$  ¦  $x=□$
    $$\begin{aligned} x &= 2 + 3 \\ &= □. \end{aligned}$$
    \begin{align*}⏎x &= 2+3 \\⏎&= □.⏎\end{align*}  ¦  \[⏎□⏎\]  ¦  $$⏎□⏎$$  ¦  □  ¦  $□$!
    \(\therefore □\)  ¦  $\Rightarrow □$  ¦  Answer: □  ¦  ### Answer: $□$  ¦  Answer → □  ¦  ($□$)
    **□**  ¦  **$□$**  ¦  - $□$  ¦  > □  ¦  1. □  ¦  1. So the sum is 12.⏎2. The mean is □
    The answer is {□}.  ¦  $\text{The answer is } □$  ¦  $\text{Answer: } □$  ¦  \textbf{Answer: □}
    \textbf{□}  ¦  $\mathbf{□}$  ¦  $□\text{ cm}$  ¦  $□\,\mathrm{m}$  ¦  $□$ square units.
    She makes $\$□$ a day.  ¦  She makes \$□ a day.
    It costs \$3 more than the \$2, so $□$ dollars.
    It costs $3 and $2, so the sum is □ dollars.  ¦  He needs □ more apples.  ¦  He ran □ times.
    It took □ days, because it rained.  ¦  $□$ (since $x > 0$).  ¦  $□$ (five) apples
    $□$ is the answer.  ¦  $□$, and we are done.
    □ Note that the order of the factors does not matter.
    $□$. Note that $25$ has a square root, which is not even.
    $□$⏎⏎Note that the other root is not positive, so it does not count.
    $□$⏎⏎Let me verify: 2 + 3 = 5 ✓.  ¦  $□$⏎⏎The answer is 5.  ¦  $□$⏎⏎The answer is 5.0 apples.
    I first thought it was 6. Wait, that is wrong. So it is $□$.
    The first guess was wrong, so it must be $□$.  ¦  Since it does not terminate, the answer is □.
    We do not need the rest. In other words, □.  ¦  答案是□。  ¦  答案：$□$  ¦  所以小明有□个苹果。
    $□$⏎⏎$x$ was the unknown.  ¦  \[□\]⏎⏎- We used the sum.⏎- We used the mean.
    $\left(□\right)$  ¦  $□ \quad \blacksquare$  ¦  $x \equiv □ \pmod{7}$  ¦  $f(2) = □$.
    Thus $m+n = 2+3 = □$.  ¦  $2+3=□ \approx 5.0$  ¦  `□`  ¦  The value is $\displaystyle □$.
    $\boxed 5$  ¦  $\boxed{ 5 }$  ¦  $\fbox{5}$  ¦  $\boxed{□}$  ¦  $\boxed{x = 5}$
    $\boxed{\text{5}}$  ¦  The total is given by $□$.  ¦  There are a total of □ apples.
    This can be written as $□$.  ¦  $□$, not 6.  ¦  $□$ rather than 6.
    The two sides add up, so we get $□$.  ¦  The number of ways is $2+3$, or simply $□$.
    $□$ (approximately)  ¦  $□$ (in total)  ¦  She sold □ eggs on Monday and Tuesday.
    Thus, $□$ of them are red.  ¦  This gives the quantity $□$.
    Part one gave $\boxed{3}$, and the answer is $□$.  ¦  **Final Answer**⏎□
    ## Final Answer⏎⏎□⏎  ¦  Everything adds up.⏎⏎---⏎□  ¦  So the sum is:⏎\[⏎□.⏎\]⏎⏎---
    □⏎**Confidence:** high  ¦  □⏎- \(x = 5\) is the only root.  ¦  <answer>□</answer>
    <answer>⏎$□$⏎</answer>  ¦  □</s>  ¦  □<|im_end|>  ¦  The root $n$ is □.
    That's \$□ in total.  ¦  This is a $□$ inch board.  ¦  The kite has $□$ fourth-grade owners.
    She paid $□$ for 3 pears.  ¦  It weighs $□$g.  ¦  Mia came in $□$th place.
    The $□^{\text{th}}$ term is the first that works.  ¦  The total is \(□\)$.
    That makes $\frac{10}{2}$, or $□$.  ¦  $□$, or equivalently $\frac{10}{2}$.  ¦  $□ = 5.0$
    $N \equiv □ \mod 7$  ¦  $N \equiv □\ (\text{mod } 7)$  ¦  \[ x = □ \quad \text{(since } x>0) \]
    There are $□$ not divisible by 3.  ¦  A total of $□$ are not prime.
    Ann is $□$ times as old as Bo.  ¦  $□$ more than a dozen eggs remain.  ¦  $2 + 3 =$ $□$.
    $\therefore$ $□$  ¦  => $□$  ¦  -> □  ¦  (b) $□$  ¦  [⏎□⏎]  ¦  □⏎⏎#### 2. Check of the steps
    □⏎⏎因此答案应该是5。  ¦  | Answer | $□$ |  ¦  $\bf{□}$  ¦  $□$ $\blacksquare$
    $□$---the largest of them.  ¦  The sum is \□.  ¦  $k=□$ and $m=6$.
    □. If this is incorrect, please tell me.  ¦  $$□$$⏎⏎ANSWER: 5  ¦  \boxed{x = 5}⏎⏎□
    Step 3: □  ¦  Question 1: □  ¦  3) $□$  ¦  ✅ $□$  ¦  which is not 7 but $□$
    The other root, $-7$, is not valid, so $x = □$.  ¦  We cannot do better, so the maximum is $□$.
    That leaves $□$ of the 7 apples.  ¦  $□$ is not a multiple of 3  ¦  2 boys and 3 girls make □
    $$2 + 3 = 5.$$Since $□$ is prime, we are done.  ¦  $□\tag{1}$  ¦  $□$ ✅
    □⏎⏎No other values work.  ¦  □⏎⏎It is 2 more than 3.  ¦  so it is $□$ (mod 7)
    □⏎⏎Let me know if you need more help!
    $□$<|end_of_solution|>  ¦  □⏎<|end_of_solution|>  ¦  I put it in \boxed{}: $□$
    Put it in \boxed{}.⏎⏎$□$  ¦  Use \boxed{...}.⏎⏎□  ¦  □. The requested form is \boxed{}.
    \boxed{=5}  ¦  \boxed{5\\}  ¦  \boxed{5,}  ¦  \boxed{5, altogether}  ¦  \boxed{\text{Answer: }5}
    \boxed{\text{The answer is } 5}  ¦  □⏎⏎Common mistake: some answer 6, which is incorrect.
    □. Many students answer 6, which is wrong.  ¦  ~~\boxed{6}~~ $□$  ¦  <del>\boxed{6}</del> □
    The number of boxes that contain neither pens nor pencils is $□$.
    The number of ways that are not symmetric is □.  ¦  Those who did not come are □.
    The graph has $□$ y-intercepts.  ¦  It is □ in base 10.  ¦  The area is $□$ $\text{cm}^2$.
    The area is $□$ \(\text{cm}^2\).  ¦  When $x=6$, $□$ is the value.
    We could say that the answer is $□$.  ¦  $x = □$, but $x = -5$ is not possible.
    $□$ is even, otherwise the sum is odd.  ¦  $□$⏎⏎Let us fix $n$ for the proof.
    Since $2 < 3$, $□$ works.  ¦  θ = □ for x² > 6.  ¦  □. Also y = 7.  ¦  It is □ Å. So λ = 7.
    The answer is (in meters) $□$.  ¦  So, x = □, y = 7  ¦  The value is $□$ [1].  ¦  $□$[^1].
    $2+3=□ \approx 5.0$  ¦  equals\boxed{5}.
""")
# Layouts of final answers by models, each with the usual line ends.
LAYOUTS = texts(r"""
    **Final Answer**⏎⏎□  ¦  \[⏎□⏎\]  ¦  $$⏎□⏎$$  ¦  ### Final Answer⏎⏎$$□$$  ¦  # Answer⏎□
    \begin{align*}⏎□⏎\end{align*}  ¦  Thus $n=5$.⏎⏎\[□\]  ¦  **Answer:**⏎⏎$$⏎□⏎$$
    Therefore, the answer is:⏎\[⏎□⏎\]⏎<|im_end|>  ¦  ---⏎⏎**Final Answer:** $□$
    1. We add.⏎2. We stop.⏎⏎Final answer: $□$  ¦  | Result |⏎|---|⏎| $□$ |  ¦  > **Answer:** □
    ✅ **Answer:** □  ¦  \begin{align*}⏎x &= 2+3 \\⏎&= □⏎\end{align*}
    **Conclusion**⏎So we get⏎$$x=□.$$  ¦  \section*{Answer}⏎□  ¦  \begin{center}⏎□⏎\end{center}
    Answer:⏎- $□$  ¦  \[\therefore \quad □\]  ¦  $$\large □$$  ¦  **Step 3: Conclude.**⏎□
    <answer>⏎□⏎</answer>  ¦  **Answer: □**⏎⏎*Explanation:* we add.  ¦  *□*  ¦  $\textcolor{red}{□}$
    \[ \begin{array}{c} □ \end{array} \]  ¦  Total = 2 + 3⏎= □  ¦  The answer is:<br>□
""")
BOUNDS = [
    *("least", "most", "minimum", "maximum", "minimal", "maximise", "greatest", "largest"),
    *("smallest", "nearest", "simplest", "closest", "highest", "interest", "honest", "forest"),
]
# Right answers in other languages.
OTHER_LANGUAGES = texts(r"""
    Die Antwort ist $□$.  ¦  Die Summe von 2 und 3 ist $□$.  ¦  Somit gibt es $□$ Möglichkeiten.
    Daher ist $n = 6$ nicht möglich, also $n = □$.  ¦  Das Ergebnis ist $□$ Meter.
    La réponse finale est $□$.  ¦  Donc, la somme de $2$ et $3$ vaut $□$.
    La respuesta es $□$. Comprobación: $2+3=5$.  ¦  Por lo tanto, el valor es □.
    Portanto, a resposta é $□$.  ¦  Dus het antwoord is $□$.  ¦  Ответ: $□$.
    Следовательно, $x = □$.  ¦  Vậy đáp án là $□$.  ¦  Jadi jawabannya adalah $□$.
    因此，答案是$□$。  ¦  所以小明有3个苹果，又买了2个，一共□个。  ¦  따라서 답은 $□$입니다.
    したがって、答えは $□$ です。  ¦  よって $x+1=6$ なので $x=□$ である。  ¦  इसलिए उत्तर $□$ है।
    إذن الجواب هو $□$.
""")
# The box is there, but the text does not say 5: by reason.
REFUSED = {
    "outside_box": texts(r"""
    $□.5$  ¦  □.5  ¦  $0.□$  ¦  0.□  ¦  $1□$  ¦  1$□$  ¦  is 1□  ¦  $□0$  ¦  □0  ¦  $□$0
    $□$ million  ¦  □ million dollars  ¦  $□ \text{ million}$  ¦  □ hundred  ¦  □ dozen eggs
    □ fifths  ¦  □ squared  ¦  □ and a half  ¦  □ or more  ¦  □ plus 1  ¦  □ over 6  ¦  □万
    $(□)^2$  ¦  (□)^2  ¦  $-□$  ¦  -□  ¦  - □  ¦  -$□$  ¦  $□!$  ¦  □!  ¦  $x□$  ¦  $x$ $□$
    $\boxed{2}\ln 3$  ¦  $□ \pi$  ¦  $□$ $\pi$  ¦  $□ x$  ¦  □ x  ¦  $(□, 6)$  ¦  $(4, □)$
    $\{4, □\}$  ¦  $x>□$  ¦  $x < □$  ¦  $x \ge □$  ¦  $x \ne □$  ¦  $x \neq □$  ¦  $x \not= □$
    $x != □$  ¦  $\sqrt{□}$  ¦  $\frac{1}{□}$  ¦  $\frac{□}{6}$  ¦  $x^{□}$  ¦  $□^2$  ¦  $□_6$
    $□ + 1$  ¦  □ + 1  ¦  $□$ + 1  ¦  $1 + □$  ¦  $□/6$  ¦  □/6  ¦  $□:6$  ¦  $□(x+1)$  ¦  $|□|$
    $\pm□$  ¦  $□i$  ¦  $\sin□$  ¦  $□ = 2x$  ¦  $□$th  ¦  □?  ¦  not $□$  ¦  The answer is not □.
    It isn't $□$.  ¦  It cannot be □.  ¦  It is not equal to □.  ¦  either 4 or $□$  ¦  at least □
    greater than □  ¦  negative □  ¦  minus □  ¦  half of □  ¦  the square root of □
    A wrong answer is □.  ¦  $□$ is wrong  ¦  $□$ is not correct  ¦  □ cannot be right.
    $□$ (or 6)  ¦  $□$ (wrong)  ¦  $□$, or 6  ¦  $□$; alternatively 6  ¦  $□$ → $6$  ¦  $□$ : 6
    $□$ to 6  ¦  $□$ choose 2  ¦  $□$ in base 6  ¦  $□$ remainder 2  ¦  $□$ feet 6 inches
    $□$ hours and 30 minutes  ¦  Answer (wrong): $□$  ¦  Incorrect answer: $□$  ¦  two □
    twenty-□  ¦  thirty □  ¦  one hundred and □  ¦  between 4 and $□$  ¦  from 4 to $□$
    $x = 4$ and $□$  ¦  up to $□$  ¦  the opposite of □  ¦  one fifth of □  ¦  10 divided by □
    multiplied by □  ¦  □ k  ¦  $□$K  ¦  □ 000  ¦  12□  ¦  $\cancel{□}$ 6  ¦  $f(□)=0$  ¦  $□\to 6$
    □ and 6  ¦  $□,000$  ¦  \$□.50  ¦  $□$:30  ¦  $\boxed{6}$, or possibly $□$
    It is 6, or perhaps $□$  ¦  $□\text{ (wrong)}$  ¦  $□$ if $x>0$, $6$ otherwise
    $□$ for $x>0$ and $6$ for $x<0$  ¦  $□$ with a remainder of 2  ¦  $□$ degrees below zero
    $□$ all squared  ¦  $□\mathrm{i}$  ¦  $□\text{x}$  ¦  $□\text{k}$  ¦  $\text{It is not } □$
    $\text{twice } □$  ¦  $x = 6 \text{ or } x = □$  ¦  $x = 6$ or $x = □$  ¦  $x = □$ and $x = 6$
    $x = 6$, $x = □$  ¦  The roots are $□$, $6$.  ¦  The roots are $6$, $□$.
    The answer is not: $□$  ¦  The answer is not⏎$□$  ¦  The answer is not⏎\[⏎□⏎\]
    It is 10 minus⏎⏎$$□$$  ¦  A wrong guess would be $□$  ¦  A mistake would be $□$
    The answer is - $□$  ¦  3:□  ¦  2 hours $□$ minutes  ¦  12 and $□$  ¦  1 out of $□$
    5% of $□$  ¦  the absolute value of $□$  ¦  a $□$th of it  ¦  the $□$th root
    $□ \text{ if } x>0, 6 \text{ else}$  ¦  $□$ are not enough  ¦  $□$ (in thousands)
    $□$ in millions  ¦  $□$ Millionen  ¦  $□$ feet, $6$ inches  ¦  $□ = 6$  ¦  $□$, or $6$
    $□$ ❌  ¦  $12 = □ \mod 7$  ¦  答案不是□  ¦  6或□  ¦  $□$或6  ¦  □不对
"""),
    "retracted": texts(r"""
    □. No wait, it is 6  ¦  □ Wait, I forgot one. It is 6.  ¦  □. Actually, the sum is 6.
    □⏎Hmm, no, that is not right.  ¦  □. I made a mistake.  ¦  □. The correct answer is 6.
    □⏎⏎**Final answer:** 6  ¦  The choice □ looked good, but it is wrong.  ¦  $□$。等等，应为6。
    $□$⏎⏎最终答案是6。  ¦  $□$⏎⏎The final answer is x = 6  ¦  $□$⏎⏎#### 6
    $□$. The answer is $\frac{1}{2}$.  ¦  $□$. However, the correct value is 6.
    $□$. Or it might be 6.
"""),
    "unclosed_box": texts(r"""
    □ but then \boxed{6  ¦  \boxed{5
"""),
    "several_boxes": texts(r"""
    $\boxed{6}$⏎⏎$□$  ¦  1. $\boxed{6}$⏎2. $□$  ¦  (a) $\boxed{6}$⏎(b) $□$  ¦  $\boxed{6} = □$
    $\boxed{6} \to □$
"""),
    "in_code": texts(r"""
    ```latex⏎□⏎```  ¦  ```⏎x⏎□
"""),
}
# Their plain reading is another value than 5, or that 5 is wrong.
NEVER_CORRECT = texts(r"""
    3 less than □  ¦  the negative of □  ¦  five hundred □  ¦  3 hours and $□$ minutes
    \$3 and □ cents  ¦  10 times □  ¦  3 per □  ¦  neither 4 nor □  ¦  sqrt □
    the square root $□$  ¦  ½□  ¦  3 out of □  ¦  3–□  ¦  3 – $□$  ¦  ±□  ¦  −$□$  ¦  $x - □$
    x²□  ¦  x = -⏎□  ¦  $$x = 3 +⏎□$$  ¦  The answer is not:⏎- $□$
    The following is wrong:⏎⏎$$□$$  ¦  The answer can't be $□$.
    So the answer is definitely not $□$.  ¦  We get $x = 3$ or $□$.  ¦  The answers are 4 and □
    The solutions are $x=□$ and $x=7$.  ¦  □ or \$7  ¦  $□ \text{ and } 7$  ¦  $x = □, 7$
    ratio □ to 7  ¦  between $□$ and $7$  ¦  $□$–$7$  ¦  □-7  ¦  $□$ out of $7$  ¦  $□$ per $7$
    $□$ in 7  ¦  □ hundredths  ¦  □ halves  ¦  □ and one half  ¦  □ 1/2  ¦  □½  ¦  □²
    $□\sqrt{2}$  ¦  $□ \times 10^{-3}$  ¦  $□{,}000$  ¦  □.000.000  ¦  $□ \pm 2$  ¦  $□ < x$
    $x \in [□, 7]$  ¦  $□ = 2 + 7$  ¦  $□ \equiv 7$  ¦  $$□⏎+ 3$$  ¦  \[□⏎- 3\]  ¦  □⏎\cdot 3
    $□$ minutes and $30$ seconds  ¦  □ times 2  ¦  $□ \bmod 3$  ¦  □ mod 3  ¦  is not⏎$$⏎□⏎$$
    $□$ when $x>0$, else $7$  ¦  $□$ is not the answer.  ¦  □ isn't right  ¦  □⏎⏎Oops, it is 7.
    □⏎⏎Actually, it's 7  ¦  □. Sorry, I made an error; it is 7.
    □⏎⏎However, the answer must be $7$.  ¦  □⏎⏎So the result is 7.  ¦  □⏎⏎This answer is wrong.
    □⏎⏎I was wrong.  ¦  □. I meant 7.  ¦  $□$ is too small
    □⏎⏎Let me recalculate. It should be 7.  ¦  □⏎⏎The answer isn't right.  ¦  □。不对，是7
    One might guess $□$, but this is too small.  ¦  almost $□$  ¦  $□$ at least.  ¦  $□$-ish
    $□$⏎⏎Hold on. We need to subtract 1. So 4.  ¦  $□$. Alternatively, 6 works too.  ¦  $6$, $□$
    $□$ for even n, 6 for odd n.  ¦  If it rains, $□$; otherwise $6$.  ¦  ~~$□$~~  ¦  <del>$□$</del>
    Answer: 6. Also acceptable: $□$  ¦  \boxed{\phantom{5}}  ¦  $□\approx6$  ¦  $□$, give or take 1
    nearly $□$  ¦  just under $□$  ¦  Some would say $□$.  ¦  $□$ unless $n$ is odd
    not quite $□$  ¦  $□$ is not quite right  ¦  It is tempting to say $□$.  ¦  $□$ or thereabouts
    $□$ but that is too large  ¦  $□$, though this is wrong  ¦  $□$. On second thought, 6.
    Students often answer $□$, which is incorrect.  ¦  $□$. Scratch that: 6.  ¦  $□$. Correction: 6.
    $□$. Let me redo this. We get 6.  ¦  $□$. My mistake, 6.  ¦  $□$. Another solution is 6.
    $□$ is one answer; 6 is another.  ¦  $□$ and also $6$  ¦  $□$ as well as $6$
    $□$ (sometimes 6)  ¦  $□$ if odd, 6 if even  ¦  $□$, i.e. 6  ¦  $□$, that is, $6$  ¦  4..□
    $□$...6  ¦  $□$ is close to the answer  ¦  It is $□$ but I'm not sure: maybe 6.
    3.$□$  ¦  0,$□$  ¦  – $□$  ¦  \[– □\]  ¦  $A □$  ¦  \[a □\]  ¦  ∑□  ¦  ¬$□$  ¦  12 mod $□$
    □ x²  ¦  $□$ x²  ¦  $□[2]$  ¦  ratio 3 : $□$  ¦  (3; $□$)  ¦  $\alpha$ $□$  ¦  $(x+1)$ $□$
    □ & 6
    $\cancel{□}$  ¦  no more than $□$  ¦  The answer is $□$ (or is it 6?)
    An upper bound is $□$.  ¦  So a lower bound for it is⏎$□$  ¦  Case 1: $□$. Case 2: $6$.
    Case a: $x = □$⏎Case b: we get $6$.
""")
# "Or", "not" and retractions in other languages.
NEVER_CORRECT_IN_OTHER_LANGUAGES = texts(r"""
    Die Antwort ist $□$ oder $6$.  ¦  La réponse est $□$ ou $6$.  ¦  答えは$□$または$6$です。
    Ответ: $□$ или $6$.  ¦  La risposta è $□$ oppure $6$.  ¦  답은 $□$ 또는 $6$입니다.
    Cevap $□$ veya $6$.  ¦  الجواب هو $□$ أو $6$.  ¦  उत्तर $□$ या $6$ है।  ¦  Đáp án là $□$ hoặc $6$.
    Odpowiedź to $□$ lub $6$.  ¦  Het antwoord is $□$ of $6$.  ¦  Jawabannya $□$ atau $6$.
    答案是 $□$ 或者 $6$。  ¦  La respuesta es $□$ o $6$.  ¦  A resposta é $□$ ou $6$.
    উত্তর $□$ বা $6$।  ¦  $6$ oder $□$  ¦  6 ou □  ¦  Antwort: 6 oder $□$.
    La réponse est $□$. Attendez, c'est faux : la réponse est 6.
    Die Antwort ist $□$. Moment, das ist falsch. Die Antwort ist 6.
    Die Antwort ist $□$. Nein, doch eher 6.
    La respuesta es $□$. Espera, es incorrecto: la respuesta es 6.
    Ответ $□$. Подождите, это неверно. Ответ 6.
    答えは$□$です。いや、間違えました。答えは6です。  ¦  Die Antwort ist nicht $□$.
    La réponse n'est pas $□$.  ¦  La respuesta no es $□$.  ¦  A resposta não é $□$.
    Ответ не $□$.  ¦  答えは$□$ではありません。  ¦  답은 $□$이 아닙니다.  ¦  Cevap $□$ değil.
    La risposta non è $□$.  ¦  Odpowiedź to nie $□$.  ¦  Het antwoord is niet $□$.
    Jawabannya bukan $□$.  ¦  Đáp án không phải là $□$.  ¦  उत्तर $□$ नहीं है।  ¦  الجواب ليس $□$.
    উত্তর $□$ নয়।
""")
# Read in another way than lists of words would read them: (text, what is said, why).
DECIDED_OTHERWISE = [
    (r"a $\boxed{5}$-digit number", EQUAL, "what is counted may follow a hyphen; 5 stays 5"),
    (r"$\boxed{5}$ (not 6)", EQUAL, "6 is denied, as in ', not 6' and 'rather than 6'"),
    (r"for example, \boxed{5}", EQUAL, "an example is what some problems ask for"),
    (r"e.g. \boxed{5}", EQUAL, "an example is what some problems ask for"),
    (r"It could also be $\boxed{5}$", EQUAL, "a doubt in other words; no other value is named"),
    ("$x = \\boxed{5}$\n\n**Check:** the result is 25, as it should.", RETRACTED, "another result"),
]

# References and responses of humans.
DECIDED = pairs(r"""
    5 ‖ ⏎□  ¦  5 ‖ ⏎⏎$□$⏎  ¦  240 ‖ That is $2\cdot 5!=\boxed{240}$ ways.
    5 ‖ $$\begin{aligned} x &= 2+3 \\ &= □ \end{aligned}$$
    5 ‖ $$\begin{array}{rcl} x &=& 2+3 \\ &=& □ \end{array} $$
    (1,4) ‖ The lines intersect at the point $\boxed{(1,4)}$.
    14 ‖ This simplifies to $28 = 2x$ or $x=\boxed{14}$.
    2015 ‖ We see that $b+1=2016$ or $b=\boxed{2015}$.
    600 ‖ It equals $50 \cdot 12$, or $\boxed{600}$.
    26 ‖ The values $0,3,4,5,6,8,$ add up to $\boxed{26}$.
    6290000 ‖ We round up to $\boxed{6290000}$.  ¦  3(x-2) ‖ Thus $\boxed{3(x-2)} = 3x-6$.
    18 ‖ $$36 = 2x, \quad \boxed{18} = x$$  ¦  6 ‖ There are $\boxed{6} = 3\cdot 2\cdot 1$ cubes.
    3 ‖ Thus $29^{13} \equiv 1+2 \equiv \boxed{3}$ modulo 7.
    625 ‖ There are $5\times 125=\boxed{625}$ such 4-digit numbers.
    3 ‖ The value of the square is $\boxed{3}$.
    44 ‖ It is $\boxed{44}$. We check our answer: $17\cdot 44 = 748$.
    8 ‖ The polygon has $\boxed{8}$ sides. With 9 sides this is impossible.
    300 ‖ $v = \boxed{300} \mathrm{~km} / \mathrm{s}$
    300 km/s ‖ $v = \boxed{300} \mathrm{~km} / \mathrm{s}$  ¦  5 ‖ 共有$\boxed{5\text{ 个}}$。
    5 ‖ \boxed{5个}  ¦  5个 ‖ 一共□个。  ¦  5元 ‖ 一共□元。  ¦  5平方米 ‖ 面积是□平方米
    $1$,$\frac{3+\sqrt{21}}{2}$ ‖ \boxed{1, \frac{3+\sqrt{21}}{2}}  ¦  $5$;$10$ ‖ \boxed{10, 5}
    $x=0$ or $x=2$ ‖ \boxed{x=0, x=2}  ¦  $4 and $5 ‖ \boxed{\$4 \text{ and } \$5}
    3, 4 ‖ \boxed{$3$, $4$}
""")
# A bound, a value or a unit beside the box that makes another answer of it.
NOT_CORRECT = pairs(r"""
    240 ‖ It is clear that $n != \boxed{240}$  ¦  5 ‖ $x = 4$ or $x = □$  ¦  5 ‖ $7\text{ or }□$
    5 ‖ The cost is up to $□$.  ¦  5 ‖ $□ = 3\cdot 2$  ¦  3 ‖ $\boxed{3} = \pi$
    3 ‖ $\boxed{3} = e$  ¦  x+5 ‖ $\boxed{x+5} = 7$  ¦  x ‖ $\boxed{x} = 5$
    300 m/s ‖ $v = \boxed{300} \mathrm{~km} / \mathrm{s}$  ¦  5\ \Omega ‖ $R = □\ \mathrm{V}$
    5\ \mu\mathrm{m} ‖ $d = □\ \mathrm{mm}$  ¦  5元 ‖ 一共□米。  ¦  5 ‖ 一共□万元。
    5 ‖ \boxed{5万元}  ¦  $5$;$10$ ‖ \boxed{5, 11}  ¦  $x=0$ or $x=2$ ‖ \boxed{x=0}
""")
ROUNDED_ENDS = pairs(r"""
    [1/3, 2] ‖ [0.333, 2]
    (-\infty, \frac13) \cup (2, \infty) ‖ (-\infty, 0.333) \cup (2, \infty)
    [\frac13, 2] ‖ 0.333 \le x \le 2
""")


@pytest.mark.parametrize("text", [*ACCEPTED, *LAYOUTS, *OTHER_LANGUAGES])
def test_words_around_the_box_leave_the_answer_alone(text):
    assert outcome("5", text) == EQUAL


@pytest.mark.parametrize("word", BOUNDS)
def test_a_problem_that_may_ask_for_a_bound_does_not_change_how_a_layout_is_read(word):
    asked = f"What is the {word} one?"
    read = {text: outcome("5", text, asked) for text in [*ACCEPTED[::4], *LAYOUTS]}
    assert [text for text, said in read.items() if said != EQUAL] == []
    assert {outcome("6", text, asked)[0] for text in LAYOUTS} == {"incorrect"}


@pytest.mark.parametrize(
    ("text", "reason"), [(text, reason) for reason in REFUSED for text in REFUSED[reason]]
)
def test_what_stands_beside_the_box_can_make_another_answer_of_it(text, reason):
    assert outcome("5", text) == ("undecided", reason)


@pytest.mark.parametrize(("text", "said", "why"), DECIDED_OTHERWISE)
def test_a_text_that_names_no_other_value_is_read_by_its_box(text, said, why):
    assert outcome("5", text) == said, why


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("What is the least number of colors?", r"We need at least $\boxed{5}$ colors."),
        ("What is the maximum number of rooks?", r"At most $\boxed{5}$ rooks fit."),
        ("What is the maximum number of rooks?", r"There are $\boxed{5}$ at most."),
        ("How many dozen eggs does she need?", r"She needs $\boxed{5}$ dozen eggs."),
    ],
)
def test_a_bound_or_a_counting_word_is_an_answer_to_a_problem_that_asks_for_it(asked, text):
    assert outcome("5", text, asked) == EQUAL
    assert outcome("5", text)[1] == "outside_box"
    assert outcome("5", r"It is not at least $\boxed{5}$.", asked)[1] == "outside_box"


@pytest.mark.parametrize(("reference", "response"), DECIDED)
def test_what_humans_write_around_a_box_is_decided(reference, response):
    assert Math().check_reference(problem(reference)) is None
    assert outcome(reference, response) == EQUAL


@pytest.mark.parametrize(
    ("reference", "response"),
    [
        *(("5", text) for text in NEVER_CORRECT),
        *NOT_CORRECT,
        *(("5", text) for text in NEVER_CORRECT_IN_OTHER_LANGUAGES),
    ],
)
def test_another_value_or_unit_beside_the_box_is_never_accepted(reference, response):
    assert outcome(reference, response)[0] != "correct"


@pytest.mark.parametrize(("reference", "answer"), ROUNDED_ENDS)
def test_a_rounded_end_of_an_interval_is_undecided_as_a_rounded_number_is(reference, answer):
    assert outcome(reference, boxed(answer)) == ("undecided", "rounded")
    off = outcome(reference, boxed(answer.replace("2", "3", 1)))[0]
    # In a union the end that is rounded may be meant by another part.
    assert off == ("undecided" if "cup" in reference else "incorrect")
